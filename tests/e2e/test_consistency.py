"""One rule everywhere: what a status says, which users there are, and what a user id can be."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from clarion.http.openapi import list_operations
from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import draft, get_event, make_type, make_user, send, wait_for_event

ALWAYS = [True] * 24
LONGEST = "u" * 128
TOO_LONG = "u" * 129
# These create the user.
CREATES = {("put", "/v1/users/{user_id}")}


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


def list_ids(app: Asker, status: str) -> list[str]:
    """Return all events with a status, page by page."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = app.get(f"/v1/events?status={status}&limit=100" + (after and f"&after={after}"))
        assert page.status == 200, page.body
        assert {each["status"] for each in page.json["items"]} <= {status}
        found += [each["event_id"] for each in page.json["items"]]
        after = page.json["next"]
    return found


def test_an_event_is_listed_by_the_status_that_it_shows(app: Asker) -> None:
    order = make_type(app, dedupe={"window_s": 3_600, "mode": "drop"})
    ana = make_user(app)
    first, second = (
        wait_for_event(app, send(app, draft(order, user_id=ana) | {"dedupe_key": "a-7"}))
        for _ in range(2)
    )
    assert (first["status"], second["status"]) == ("completed", "deduplicated")
    for event in (first, second):
        for status in ("completed", "deduplicated", "pending", "processing"):
            is_listed = event["event_id"] in list_ids(app, status)
            assert is_listed == (event["status"] == status)


def test_an_event_for_several_users_is_completed_whatever_was_decided(app: Asker) -> None:
    order = make_type(app, dedupe={"window_s": 3_600, "mode": "drop"})
    both = [make_user(app), make_user(app)]
    for _ in range(2):
        event = send(app, draft(order, user_ids=both) | {"dedupe_key": "a-7"})
        assert wait_for_event(app, event)["status"] == "completed"
    statuses = app.get(f"/v1/events/{event}/notifications").json["items"]
    assert {each["status"] for each in statuses} == {"dropped"}


def test_what_waits_is_held_and_its_event_is_completed(app: Asker) -> None:
    order = make_type(app, default_channels=["stub"])
    app.ask("PUT", f"/v1/types/{order}/templates/stub", {"body": "{{ order }}"})
    ana = make_user(app, quiet_hours=ALWAYS, attributes={"stub": "delivered"})
    event = wait_for_event(app, send(app, draft(order, user_id=ana)))
    assert event["status"] == "completed"
    (made,) = app.get(f"/v1/events/{event['event_id']}/notifications").json["items"]
    assert made["status"] == "held"
    (waiting,) = app.get(f"/v1/users/{ana}/waiting").json["items"]
    assert waiting["channels"][0]["status"] == "held"
    assert app.ask("DELETE", f"/v1/events/{event['event_id']}").status == 200
    assert get_event(app, event["event_id"])["status"] == "cancelled"


def operations_on_users(server: Server) -> Iterator[tuple[str, str, Any]]:
    document = server.anyone.get("/openapi.json").json
    for path, method, operation in list_operations(document):
        if "{user_id}" in path and (method, path) not in CREATES:
            content = operation.get("requestBody", {}).get("content", {})
            yield method, path, content.get("application/json", {}).get("example")


def test_an_unknown_user_is_not_found_by_any_operation(server: Server) -> None:
    unknown, answers = uuid.uuid4().hex, {}
    for method, path, body in operations_on_users(server):
        asked = path.format(user_id=unknown, topic="releases", notification_id=unknown)
        answers[method, path] = server.app.ask(method.upper(), asked, body).status
    assert len(answers) > 15
    assert {each: status for each, status in answers.items() if status != 404} == {}


def test_a_user_is_known_at_once_also_if_it_was_asked_for_before(app: Asker) -> None:
    name = uuid.uuid4().hex
    path = f"/v1/users/{name}/unread-count"
    assert app.get(path).status == 404
    assert app.ask("PUT", f"/v1/users/{name}", {}).status == 201
    assert app.get(path).json == {"unread_count": 0, "sequence": 0}


def test_a_token_may_be_used_before_its_user_is_created(server: Server) -> None:
    me = with_token(server, uuid.uuid4().hex)
    assert me.get("/v1/me/notifications").json["items"] == []


def with_token(server: Server, user_id: str) -> Asker:
    app = server.first["app"]
    claims = {"sub": user_id, "aud": app["id"], "exp": int(time.time()) + 600}
    return server.with_key(jwt.encode(claims, app["user_secret"], algorithm="HS256"))


def test_a_user_id_has_the_same_limit_everywhere(server: Server) -> None:
    app = server.app
    for user_id, is_valid in ((LONGEST, True), (TOO_LONG, False)):
        assert app.ask("PUT", f"/v1/users/{user_id}", {}).status in (
            (200, 201) if is_valid else (422,)
        )
        batch = app.post("/v1/users/batch", {"users": [{"id": user_id}]}).json["results"][0]
        assert (batch["status"] != "refused") == is_valid
        event = draft("POST_LIKE", user_id=user_id)
        assert app.post("/v1/explain", event).status == (200 if is_valid else 422)
        device = {"platform": "clarion", "user_id": user_id}
        assert app.post("/v1/devices", device).status == (201 if is_valid else 422)
        status = with_token(server, user_id).get("/v1/me/unread-count").status
        assert status == (200 if is_valid else 401)
