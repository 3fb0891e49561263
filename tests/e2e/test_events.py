"""Events through a running server: recipients, schedules, batches, idempotency, permissions."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import (
    draft,
    explain,
    get_event,
    inbox,
    make_type,
    make_user,
    send,
    send_and_wait,
    wait_for_event,
    wait_until,
)

CROWD = 300


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def other_app(server: Server) -> Asker:
    """An app of its own: it has no other users and events."""
    return server.with_key(server.make_app()["api_key"])


@pytest.fixture
def ana(app: Asker) -> str:
    return make_user(app, name="Ana")


@pytest.fixture
def order(app: Asker) -> str:
    """A type of the app's own."""
    return make_type(app)


def ahead(**more: float) -> str:
    return (datetime.now(UTC) + timedelta(**more)).isoformat()


def test_an_event_is_rendered_in_the_inbox(app: Asker, ana: str) -> None:
    event = {
        "type": "POST_COMMENT",
        "recipient": {"user_id": ana},
        "actor": {"id": "bo", "name": "Bo"},
        "target": {"id": "p1", "type": "post"},
        "data": {"snippet": "Schön 📦"},
        "deeplink": "app://posts/p1",
        "image_url": "https://example.com/bo.png",
        "priority": "high",
    }
    seen = send_and_wait(app, event)
    assert (seen["status"], seen["notification_count"], seen["remaining"]) == ("completed", 1, 0)
    assert (seen["retry_count"], seen["last_error"], seen["priority"]) == (0, None, "high")
    (item,) = inbox(app, ana)
    assert (item["title"], item["type"]) == ("New comment", "POST_COMMENT")
    assert item["body"] == "Bo commented on your post: “Schön 📦”"
    for name in ("actor", "target", "data", "deeplink", "image_url", "priority"):
        assert item[name] == event[name]


def test_the_text_is_in_the_users_language(app: Asker, order: str) -> None:
    path = f"/v1/types/{order}/templates/in_app?language=de"
    german = {"body": "{{ order }} ist da, {{ user.name }}", "variables": ["order"]}
    assert app.ask("PUT", path, german).status == 200
    uwe = make_user(app, name="Uwe", language="de")
    send_and_wait(app, draft(order, user_id=uwe))
    assert inbox(app, uwe)[0]["body"] == "A-7 ist da, Uwe"


def test_named_users_get_one_each_even_if_repeated(app: Asker, order: str) -> None:
    users = [make_user(app) for _ in range(3)]
    event = draft(order, user_ids=[*users, users[0]])
    seen = send_and_wait(app, event)
    assert (seen["status"], seen["notification_count"]) == ("completed", 3)
    assert seen["recipient"] == {"user_ids": users}
    assert [len(inbox(app, each)) for each in users] == [1, 1, 1]


def test_only_followers_get_events_of_a_topic(app: Asker, ana: str, order: str) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    others = [make_user(app) for _ in range(2)]
    for each in (ana, others[0]):
        assert app.ask("PUT", f"/v1/users/{each}/topics/{topic}").status in {200, 201, 204}
    seen = send_and_wait(app, draft(order, topic=topic))
    assert (seen["notification_count"], seen["recipient"]) == (2, {"topic": topic})
    assert [len(inbox(app, each)) for each in (ana, *others)] == [1, 1, 0]


def test_a_topic_without_followers_is_over_at_once(app: Asker, order: str) -> None:
    seen = send_and_wait(app, draft(order, topic=f"t-{uuid.uuid4().hex}"))
    assert (seen["status"], seen["notification_count"], seen["remaining"]) == ("completed", 0, 0)


def test_all_users_get_exactly_one(other_app: Asker) -> None:
    users = [f"u{number:04}" for number in range(CROWD)]
    for each in users:
        assert other_app.ask("PUT", f"/v1/users/{each}", {}).status == 201
    seen = send_and_wait(other_app, draft(make_type(other_app), all=True))
    assert (seen["status"], seen["notification_count"], seen["remaining"]) == (
        "completed",
        CROWD,
        0,
    )
    assert [each for each in users if len(inbox(other_app, each)) != 1] == []


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_bad_one_does_not_spoil_a_batch(
    app: Asker, ana: str, order: str, *, is_wrapped: bool
) -> None:
    events: list[Any] = [
        draft(order, user_id=ana),
        draft("NO_SUCH_TYPE", user_id=ana),
        draft(order, user_ids=[ana, "nobody"]),
        {"type": order},
        7,
        draft(order, user_id=ana) | {"data": {"order": "B-8"}},
    ]
    body = {"events": events} if is_wrapped else json.dumps(events).encode()
    answer = app.post("/v1/events/batch", body)
    assert answer.status == 202
    results = answer.json["results"]
    statuses = [each["status"] for each in results]
    assert statuses == ["pending", "refused", "refused", "refused", "refused", "pending"]
    assert [each["errors"][0]["field"] for each in results[1:5]] == [
        "type",
        "recipient.user_ids[1]",
        "recipient",
        "body",
    ]
    for each in (results[0], results[5]):
        assert wait_for_event(app, each["event_id"])["status"] == "completed"
    assert {item["body"] for item in inbox(app, ana)} == {"A-7 is ready", "B-8 is ready"}


def test_a_batch_of_bad_ones_stores_nothing(other_app: Asker) -> None:
    answer = other_app.post("/v1/events/batch", {"events": [draft("NO_SUCH_TYPE", all=True)] * 3})
    assert [each["status"] for each in answer.json["results"]] == ["refused"] * 3
    assert other_app.get("/v1/events").json["items"] == []


def test_a_batch_takes_a_thousand(app: Asker, ana: str, order: str) -> None:
    answer = app.post("/v1/events/batch", {"events": [draft(order, user_id=ana)] * 1_000})
    ids = [each["event_id"] for each in answer.json["results"]]
    assert len(set(ids)) == len(ids) == 1_000
    path = f"/v1/users/{ana}/unread-count"
    wait_until(lambda: app.get(path).json["unread_count"] == len(ids) or None)


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch"])
def test_a_repeat_with_the_same_key_gets_the_first_answer(
    app: Asker, ana: str, order: str, path: str
) -> None:
    event = draft(order, user_id=ana)
    body = {"events": [event]} if path.endswith("batch") else event
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    first, second = (app.post(path, body, headers=headers) for _ in range(2))
    assert (first.status, second.status) == (202, 202)
    assert first.body == second.body
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    result = first.json["results"][0] if "results" in first.json else first.json
    wait_for_event(app, result["event_id"])
    assert len(inbox(app, ana)) == 1


def test_the_same_key_with_another_body_is_refused(app: Asker, ana: str, order: str) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    app.post("/v1/events", draft(order, user_id=ana), headers=headers)
    other = app.post("/v1/events", draft(order, user_ids=[ana]), headers=headers)
    assert (other.status, other.problem["code"]) == (422, "idempotency_key_reused")


def test_a_key_counts_for_those_who_ask_at_the_same_time(app: Asker, ana: str, order: str) -> None:
    event, headers = draft(order, user_id=ana), {"Idempotency-Key": uuid.uuid4().hex}
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(app.post, "/v1/events", event, headers=headers) for _ in range(8)]
        answers = [each.result() for each in asked]
    assert {each.status for each in answers} == {202}
    (body,) = {each.body for each in answers}
    assert sum("idempotent-replayed" in each.headers for each in answers) == 7
    wait_for_event(app, json.loads(body)["event_id"])
    assert len(inbox(app, ana)) == 1


def test_a_repeat_is_one_also_when_its_time_has_come(app: Asker, ana: str, order: str) -> None:
    """Who got no answer asks again later; by then the schedule may be in the past."""
    event = draft(order, user_id=ana) | {"scheduled_at": ahead(seconds=0.5)}
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    first = app.post("/v1/events", event, headers=headers)
    wait_for_event(app, first.json["event_id"])
    again = app.post("/v1/events", event, headers=headers)
    assert (again.status, again.body) == (202, first.body)
    assert again.headers["idempotent-replayed"] == "true"


def test_a_scheduled_event_waits_for_its_time(app: Asker, ana: str, order: str) -> None:
    answer = app.post(
        "/v1/events", draft(order, user_id=ana) | {"scheduled_at": ahead(seconds=1.5)}
    )
    assert (answer.status, answer.json["status"]) == (202, "scheduled")
    event_id = answer.json["event_id"]
    listed = app.get("/v1/events?status=scheduled&limit=100").json["items"]
    assert event_id in [each["event_id"] for each in listed]
    assert inbox(app, ana) == []
    seen = wait_for_event(app, event_id)
    (item,) = inbox(app, ana)
    assert seen["status"] == "completed"
    assert item["created_at"] >= seen["scheduled_at"]


def test_a_cancelled_event_is_never_sent(app: Asker, ana: str, order: str) -> None:
    event_id = send(app, draft(order, user_id=ana) | {"scheduled_at": ahead(seconds=1)})
    for _ in range(2):
        answer = app.delete(f"/v1/events/{event_id}")
        assert (answer.status, answer.json["status"]) == (200, "cancelled")
    # An event scheduled after it was sent, so its own time has passed, too.
    send_and_wait(app, draft(order, user_id=make_user(app)) | {"scheduled_at": ahead(seconds=1.5)})
    assert (get_event(app, event_id)["status"], inbox(app, ana)) == ("cancelled", [])
    listed = app.get("/v1/events?status=cancelled&limit=100").json["items"]
    assert event_id in [each["event_id"] for each in listed]


def test_what_is_over_cannot_be_cancelled_or_replayed(app: Asker, ana: str, order: str) -> None:
    event_id = send_and_wait(app, draft(order, user_id=ana))["event_id"]
    for answer in (
        app.delete(f"/v1/events/{event_id}"),
        app.post(f"/v1/events/{event_id}/replay"),
    ):
        assert (answer.status, answer.problem["code"]) == (409, "conflict")
        assert "completed" in answer.problem["detail"]


def test_a_user_who_is_inactive_by_then_gets_nothing(app: Asker, ana: str, order: str) -> None:
    event_id = send(app, draft(order, user_id=ana) | {"scheduled_at": ahead(seconds=0.5)})
    assert app.ask("PATCH", f"/v1/users/{ana}", {"status": "inactive"}).status == 200
    # That a user gets nothing is not a failure of the event.
    assert wait_for_event(app, event_id)["status"] == "completed"
    assert inbox(app, ana) == []
    assert explain(app, draft(order, user_id=ana))["in_app"]["reason"] == "user_inactive"


@pytest.mark.parametrize("life", ["ttl_s", "expires_at"])
def test_a_life_begins_with_the_schedule(app: Asker, ana: str, order: str, life: str) -> None:
    start = datetime.now(UTC) + timedelta(hours=1)
    given = {"ttl_s": 60, "expires_at": (start + timedelta(seconds=60)).isoformat()}[life]
    event = draft(order, user_id=ana) | {"scheduled_at": start.isoformat(), life: given}
    seen = get_event(app, send(app, event))
    end = datetime.fromisoformat(seen["expires_at"])
    assert end - datetime.fromisoformat(seen["scheduled_at"]) == timedelta(seconds=60)
    assert app.delete(f"/v1/events/{seen['event_id']}").status == 200


def test_the_list_is_newest_first_and_whole(other_app: Asker) -> None:
    ana, order = make_user(other_app), make_type(other_app)
    made = [send(other_app, draft(order, user_id=ana)) for _ in range(5)]
    listed, after = [], ""
    while True:
        page = other_app.get(f"/v1/events?limit=2{after}").json
        listed += [each["event_id"] for each in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert listed == made[::-1]


def test_an_event_of_another_app_is_404(app: Asker, other_app: Asker, ana: str, order: str) -> None:
    event_id = send_and_wait(app, draft(order, user_id=ana))["event_id"]
    (item,) = inbox(app, ana)
    for path in (
        f"/v1/events/{event_id}",
        f"/v1/notifications/{item['id']}",
        f"/v1/notifications/{item['id']}/deliveries",
        f"/v1/notifications/{item['id']}/timeline",
    ):
        assert app.get(path).status == 200
        assert (other_app.get(path).status, other_app.get(path).problem["code"]) == (
            404,
            "not_found",
        )
    assert other_app.delete(f"/v1/events/{event_id}").status == 404
    assert other_app.post(f"/v1/events/{event_id}/replay").status == 404


def test_only_applications_with_the_scope_send_events(server: Server, ana: str, order: str) -> None:
    event = draft(order, user_id=ana)
    user = InboxUser(server, ana).me
    for path, body in (
        ("/v1/events", event),
        ("/v1/events/batch", {"events": [event]}),
        ("/v1/explain", event),
    ):
        assert user.post(path, body).status == 403
        assert server.anyone.post(path, body).status == 401
    assert user.get("/v1/events").status == 403
    reader = server.make_key("events:read")
    assert (reader.post("/v1/events", event).status, reader.get("/v1/events").status) == (403, 200)
    assert reader.post("/v1/explain", event).status == 200
    writer = server.make_key("events:write")
    event_id = send(writer, event)
    assert writer.get(f"/v1/events/{event_id}").status == 403
