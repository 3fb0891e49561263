"""`GET /v1/notifications` and `GET /v1/live`: what operators look at."""

from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import draft, make_type, make_user, send_and_wait, set_stub, wait_until


@pytest.fixture(scope="module")
def app(server: Server) -> Asker:
    """An app of its own: nobody else's notifications are in its lists."""
    return server.with_key(server.make_app()["api_key"])


def list_ids(app: Asker, query: str = "") -> list[str]:
    """Follow the pages to the end, and return the ids."""
    found: list[str] = []
    after = ""
    while True:
        answer = app.get(f"/v1/notifications?limit=2{query}{after}")
        assert answer.status == 200, answer.body
        found += [each["id"] for each in answer.json["items"]]
        if answer.json["next"] is None:
            return found
        after = f"&after={answer.json['next']}"


def send_one(app: Asker, type_: str, user_id: str) -> str:
    event_id = send_and_wait(app, draft(type_, user_id=user_id))["event_id"]
    id_: str = app.get(f"/v1/events/{event_id}/notifications").json["items"][0]["id"]
    return id_


def test_notifications_are_listed_newest_first_and_filtered(app: Asker) -> None:
    one, two = make_type(app), make_type(app, default_channels=["in_app", "stub"])
    ana, ben = make_user(app), make_user(app)
    set_stub(app, ben, "rejected")
    sent = [send_one(app, *each) for each in ((one, ana), (two, ben), (one, ben), (one, ana))]

    def look() -> list[str] | None:
        return list_ids(app, "&delivery_status=failed") or None

    assert wait_until(look) == [sent[1]]
    assert list_ids(app) == sent[::-1]
    assert list_ids(app, f"&user_id={ana}") == [sent[3], sent[0]]
    assert list_ids(app, f"&type={two}") == [sent[1]]
    assert list_ids(app, "&delivery_status=delivered&reason=allowed") == sent[::-1]
    assert list_ids(app, "&reason=rejected") == [sent[1]]
    assert list_ids(app, "&delivery_status=delivered&reason=rejected") == []
    (item,) = app.get("/v1/notifications?delivery_status=failed").json["items"]
    assert item["status"] == "partially_delivered"
    ends = {each["channel"]: each["status"] for each in item["deliveries"]}
    assert ends == {"in_app": "delivered", "stub": "failed"}


@pytest.mark.parametrize(
    ("query", "field"),
    [("delivery_status=x", "delivery_status"), ("reason=x", "reason"), ("after=x", "after")],
)
def test_a_wrong_filter_is_named(app: Asker, query: str, field: str) -> None:
    answer = app.get(f"/v1/notifications?{query}")
    assert (answer.status, answer.fields) == (422, [field])


def test_live_figures_are_those_of_the_app(app: Asker) -> None:
    answer = app.get("/v1/live")
    assert answer.status == 200
    figures: dict[str, Any] = answer.json
    assert (figures["devices_online"], figures["clients_online"]) == (0, 0)
    assert figures["queue_age_s"] >= 0
    assert figures["queue_due"] >= 0 <= figures["queue_held"]
