"""What waits for a user, through a running server."""

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import (
    ANY_HOUR,
    draft,
    make_type,
    make_user,
    send,
    set_preferences,
    wait_for_event,
    wait_until,
)

ALWAYS = [True] * 24


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


def waiting(app: Asker, user_id: str, query: str = "") -> tuple[list[dict[str, object]], object]:
    answer = app.get(f"/v1/users/{user_id}/waiting{query}")
    assert answer.status == 200, answer.body
    return answer.json["items"], answer.json["next"]


def test_what_is_held_is_listed_until_it_is_released(app: Asker) -> None:
    ana = make_user(app, quiet_hours=ALWAYS, attributes={"stub": "delivered"})
    order = make_type(app, display_name="x", category="social", default_channels=["in_app", "stub"])
    for _ in range(3):
        wait_for_event(app, send(app, draft(order, user_id=ana)))

    items, after = waiting(app, ana, "?limit=2")
    rest, end = waiting(app, ana, f"?limit=2&after={after}")

    assert (len(items), len(rest), end) == (2, 1, None)
    assert len({item["notification_id"] for item in (*items, *rest)}) == 3
    held = {"channel": "stub", "status": "held", "reason": "quiet_hours", "rule": "quiet_hours"}
    assert [item["channels"] for item in items] == [
        [{**held, "until": None, "dead_letter": None}]
    ] * 2
    assert {item["type"] for item in items} == {order}

    set_preferences(app, ana, quiet_hours=ANY_HOUR)
    assert wait_until(lambda: waiting(app, ana) if not waiting(app, ana)[0] else None) == ([], None)


def test_nothing_waits_for_a_new_user(app: Asker) -> None:
    assert waiting(app, make_user(app)) == ([], None)


def test_a_page_has_at_most_a_hundred(app: Asker) -> None:
    answer = app.get("/v1/users/ana/waiting?limit=101")
    assert (answer.status, answer.problem["errors"][0]["field"]) == (422, "limit")
