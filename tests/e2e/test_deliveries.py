"""Deliveries through a running server and its stub channel."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import (
    ANY_HOUR,
    deliveries,
    delivery,
    draft,
    explain,
    get_event,
    inbox,
    make_type,
    make_user,
    send,
    send_and_wait,
    set_preferences,
    set_stub,
    timeline,
    wait_for_event,
    wait_until,
)

DELIVERY = {
    "channel",
    "status",
    "reason",
    "rule",
    "until",
    "attempt_count",
    "provider",
    "sent_at",
    "delivered_at",
    "read_at",
    "last_attempt_at",
    "error_code",
    "error_message",
    "attempts",
}
ATTEMPT = {
    "number",
    "device_id",
    "provider",
    "status",
    "provider_response",
    "error_code",
    "error_message",
    "attempted_at",
}
TIMELINE_ENTRY = {"at", "what", "channel", "reason", "rule", "until", "detail"}
BOTH = ["in_app", "stub"]
ALWAYS = [True] * 24


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def order(app: Asker) -> str:
    return make_type(app, default_channels=BOTH)


def make_reader(app: Asker, stub: str, **more: Any) -> str:
    """Create a user for whom the stub channel has this outcome."""
    return make_user(app, name="Ana", attributes={"stub": stub}, **more)


def send_one(app: Asker, order: str, user_id: str, **more: Any) -> str:
    """Send an event to a user, and return the id of its notification."""
    send_and_wait(app, draft(order, user_id=user_id) | more)
    found: str = inbox(app, user_id)[0]["id"]
    return found


def test_a_delivery_is_visible_everywhere(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    made = send_one(app, order, ana)
    found = delivery(app, made, "delivered")
    assert (set(found), set(found["attempts"][0])) == (DELIVERY, ATTEMPT)
    assert (found["attempt_count"], found["provider"], found["reason"]) == (
        1,
        "stub",
        "allowed",
    )
    assert found["attempts"][0]["provider_response"] == "stub: accepted"
    assert found["delivered_at"] is not None
    seen = app.get(f"/v1/notifications/{made}").json
    assert (seen["status"], seen["user_id"], seen["is_shown"]) == ("delivered", ana, True)
    entries = timeline(app, made)
    assert set(entries[0]) == TIMELINE_ENTRY
    assert [each["what"] for each in entries if each["channel"] in {None, "stub"}] == [
        "accepted",
        "created",
        "send",
        "attempt 1: delivered",
        "delivered",
    ]
    assert [each["at"] for each in entries] == sorted(each["at"] for each in entries)


def test_reading_is_in_the_timeline(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    made = send_one(app, order, ana)
    assert app.post(f"/v1/users/{ana}/notifications/{made}/read").status == 200
    found = deliveries(app, made)
    assert found["in_app"]["read_at"] is not None
    assert found["stub"]["read_at"] is None
    assert "read" in [each["what"] for each in timeline(app, made)]


@pytest.mark.parametrize(
    ("address", "reason", "code"),
    [("rejected", "rejected", "rejected"), ("gone", "address_gone", "gone")],
)
def test_a_rejected_message_is_not_retried(
    app: Asker, order: str, address: str, reason: str, code: str
) -> None:
    made = send_one(app, order, make_reader(app, address))
    found = delivery(app, made, "failed")
    assert (found["reason"], found["error_code"], found["attempt_count"]) == (reason, code, 1)
    assert [each["status"] for each in found["attempts"]] == [address]
    status = app.get(f"/v1/notifications/{made}").json["status"]
    assert status == "partially_delivered"


@pytest.mark.parametrize("address", ["retry 1"])
def test_a_failed_attempt_is_retried(app: Asker, order: str, address: str) -> None:
    ana = make_reader(app, address)
    event_id = send_and_wait(app, draft(order, user_id=ana))["event_id"]
    made = inbox(app, ana)[0]["id"]
    found = delivery(app, made, "delivered")
    assert [each["status"] for each in found["attempts"]] == ["retry", "delivered"]
    assert (found["attempt_count"], found["error_code"], found["error_message"]) == (2, None, None)
    seen = get_event(app, event_id)
    assert seen["retry_count"] == 1
    assert "try_later" in seen["last_error"]


def test_a_dead_letter_is_listed_and_replayed(server: Server) -> None:
    """Five tries take about half a minute: two, four, eight and sixteen seconds at most apart."""
    app = server.with_key(server.make_app()["api_key"])
    order = make_type(app, default_channels=BOTH)
    ana = make_reader(app, "retry")
    event_id = send(app, draft(order, user_id=ana))

    def look() -> dict[str, Any] | None:
        listed: list[dict[str, Any]] = app.get("/v1/events?status=failed").json["items"]
        return listed[0] if listed else None

    wait_until(lambda: inbox(app, ana) or None)
    made = inbox(app, ana)[0]["id"]
    dead = wait_until(look)
    assert (dead["event_id"], dead["status"], dead["retry_count"]) == (event_id, "failed", 5)
    assert dead["last_error"] == "stub: try_later: not now"
    found = deliveries(app, made)["stub"]
    assert (found["status"], found["reason"]) == ("failed", "attempts_exhausted")
    assert [each["number"] for each in found["attempts"]] == [1, 2, 3, 4, 5]
    assert app.delete(f"/v1/events/{event_id}").status == 409
    set_stub(app, ana, "delivered")
    answer = app.post(f"/v1/events/{event_id}/replay")
    assert (answer.status, answer.json["status"]) == (202, "completed")
    assert delivery(app, made, "delivered")["attempt_count"] == 6
    assert app.get("/v1/events?status=failed").json["items"] == []
    assert len(inbox(app, ana)) == 1


def test_the_stub_needs_the_data_of_the_inbox_template(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    answer = app.post("/v1/events", draft(order, user_id=ana) | {"channels": ["stub"], "data": {}})
    assert (answer.status, answer.fields) == (422, ["data.order"])


def test_without_an_address_the_other_channels_deliver(app: Asker, order: str) -> None:
    made = send_one(app, order, make_user(app))
    found = deliveries(app, made)["stub"]
    assert (found["status"], found["reason"], found["rule"]) == ("dropped", "no_address", "type")
    assert app.get(f"/v1/notifications/{made}").json["status"] == "delivered"


def test_a_held_delivery_is_released_when_quiet_hours_change(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered", quiet_hours=ALWAYS)
    made = send_one(app, order, ana)
    found = deliveries(app, made)
    assert found["in_app"]["status"] == "delivered"
    assert (found["stub"]["status"], found["stub"]["reason"]) == ("held", "quiet_hours")
    assert app.get(f"/v1/notifications/{made}").json["status"] == "held"
    set_preferences(app, ana, quiet_hours=ANY_HOUR)
    delivery(app, made, "delivered")
    verdicts = [each for each in timeline(app, made) if each["channel"] == "stub"]
    assert [each["what"] for each in verdicts[:2]] == ["hold", "send"]
    assert app.get(f"/v1/notifications/{made}").json["status"] == "delivered"


@pytest.mark.parametrize(
    ("timezone", "at", "until"),
    [
        ("UTC", "2026-01-10T23:30:00Z", "2026-01-11T07:00:00.000Z"),
        ("America/New_York", "2026-01-11T04:00:00Z", "2026-01-11T12:00:00.000Z"),
        # Clocks go forward in the night, and back.
        ("Europe/Berlin", "2026-03-28T22:30:00Z", "2026-03-29T05:00:00.000Z"),
        ("Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25T06:00:00.000Z"),
        ("Asia/Kathmandu", "2026-01-10T20:00:00Z", "2026-01-11T01:15:00.000Z"),
    ],
)
def test_explain_says_until_when_it_is_held(
    app: Asker, order: str, timezone: str, at: str, until: str
) -> None:
    night = [hour >= 22 or hour < 7 for hour in range(24)]
    ana = make_reader(app, "delivered", timezone=timezone, quiet_hours=night)
    verdicts = explain(app, draft(order, user_id=ana) | {"at": at})
    assert verdicts["stub"] == {
        "channel": "stub",
        "verdict": "hold",
        "reason": "quiet_hours",
        "rule": "quiet_hours",
        "until": until,
    }
    assert verdicts["in_app"]["verdict"] == "send"
    critical = draft(order, user_id=ana) | {"at": at, "priority": "critical"}
    passed = explain(app, critical)["stub"]
    assert (passed["verdict"], passed["reason"]) == ("send", "mandatory")
    assert explain(app, draft(order, user_id=ana) | {"at": until})["stub"]["verdict"] == "send"


def test_explain_changes_nothing(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 1})
    ana = make_user(app)
    for _ in range(3):
        assert explain(app, draft(order, user_id=ana))["in_app"]["verdict"] == "send"
    assert inbox(app, ana) == []


def test_explain_knows_the_toggles_of_the_user(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    set_preferences(app, ana, types={order: {"in_app": False}})
    assert explain(app, draft(order, user_id=ana))["in_app"]["reason"] == "channel_off"
    set_preferences(app, ana, categories={"transactional": False})
    verdicts = explain(app, draft(order, user_id=ana))
    assert {each["reason"] for each in verdicts.values()} == {"category_off"}
    assert {each["rule"] for each in verdicts.values()} == {"preferences"}


def test_a_repeat_is_dropped(app: Asker) -> None:
    order = make_type(app, dedupe={"window_s": 3600, "mode": "drop"})
    ana, bo = make_user(app), make_user(app)
    repeat = {"dedupe_key": "A-7"}
    assert send_and_wait(app, draft(order, user_id=ana) | repeat)["status"] == "completed"
    second = send_and_wait(app, draft(order, user_id=ana) | repeat)
    assert second["status"] == "deduplicated"
    assert explain(app, draft(order, user_id=ana) | repeat)["in_app"]["reason"] == "duplicate"
    for other in (draft(order, user_id=bo) | repeat, draft(order, user_id=ana)):
        assert send_and_wait(app, other)["status"] == "completed"
    assert (len(inbox(app, ana)), len(inbox(app, bo))) == (2, 1)
    listed = app.get("/v1/events?status=deduplicated&limit=100").json["items"]
    assert second["event_id"] in [each["event_id"] for each in listed]


def test_repeats_are_counted_in_the_unread_one(app: Asker) -> None:
    ana = make_user(app)

    def like(name: str) -> dict[str, Any]:
        event = draft("POST_LIKE", user_id=ana)
        return send_and_wait(app, event | {"actor": {"name": name}, "dedupe_key": "p1", "data": {}})

    assert like("Bo")["status"] == "completed"
    assert inbox(app, ana)[0]["body"] == "Bo liked your post"
    assert like("Ana")["status"] == "deduplicated"
    (item,) = inbox(app, ana)
    assert (item["body"], item["count"]) == ("Ana and 1 other liked your post", 2)
    like("Cy")
    (item,) = inbox(app, ana)
    assert (item["body"], item["count"]) == ("Cy and 2 others liked your post", 3)
    app.post(f"/v1/users/{ana}/notifications/{item['id']}/read")
    # A read notification takes in no more.
    assert like("Di")["status"] == "completed"
    assert [each["body"] for each in inbox(app, ana)] == ["Di liked your post", item["body"]]


def send_together(app: Asker, event: dict[str, Any], count: int) -> list[str]:
    """Send the same event many times at once, and return the status of each."""
    answer = app.post("/v1/events/batch", {"events": [event] * count})
    ids = [each["event_id"] for each in answer.json["results"]]
    return [wait_for_event(app, each)["status"] for each in ids]


def test_of_simultaneous_repeats_one_is_sent(app: Asker) -> None:
    order = make_type(app, dedupe={"window_s": 3600, "mode": "drop"})
    ana = make_user(app)
    statuses = send_together(app, draft(order, user_id=ana) | {"dedupe_key": "k"}, 30)
    assert (statuses.count("completed"), statuses.count("deduplicated")) == (1, 29)
    assert len(inbox(app, ana)) == 1


def test_repeats_that_come_together_are_all_counted(app: Asker) -> None:
    body = "{{ count }} of {{ order }}"
    order = make_type(app, body, dedupe={"window_s": 3600, "mode": "aggregate"})
    ana = make_user(app)
    statuses = send_together(app, draft(order, user_id=ana) | {"dedupe_key": "k"}, 30)
    assert (statuses.count("completed"), statuses.count("deduplicated")) == (1, 29)
    (item,) = inbox(app, ana)
    assert (item["count"], item["body"]) == (30, "30 of A-7")


def test_a_limit_is_kept_by_those_that_come_together(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 7})
    ana = make_user(app)
    statuses = send_together(app, draft(order, user_id=ana), 30)
    # Twice as many if an hour ends just now.
    assert statuses.count("completed") in {7, 14}
    assert len(inbox(app, ana)) == statuses.count("completed")


def test_what_is_over_the_limit_is_dropped(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 2})
    ana = make_user(app)
    statuses = [send_and_wait(app, draft(order, user_id=ana))["status"] for _ in range(3)]
    # An hour may end just now.
    assert statuses in (["completed", "completed", "rate_limited"], ["completed"] * 3)
    assert len(inbox(app, ana)) == statuses.count("completed")


def test_what_is_over_the_limit_can_wait(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 1, "overflow": "wait"})
    ana = make_user(app)
    events = [send(app, draft(order, user_id=ana)) for _ in range(3)]
    assert {wait_for_event(app, each)["status"] for each in events} == {"completed"}
    verdict = explain(app, draft(order, user_id=ana))["in_app"]
    assert (verdict["verdict"], verdict["reason"]) == ("hold", "limit_waits")
    assert datetime.fromisoformat(verdict["until"]).minute == 0


def test_a_digest_sends_what_was_collected_once(app: Asker) -> None:
    body = "{{ count }} orders, the last is {{ order }}"
    order = make_type(app, body, default_channels=BOTH, digest={"window_s": 6})
    ana = make_reader(app, "delivered")
    events = [
        send(app, draft(order, user_id=ana) | {"data": {"order": name}}) for name in ("A", "B", "C")
    ]
    for each in events:
        wait_for_event(app, each)
    newest, *older = [item["id"] for item in inbox(app, ana)]
    first = deliveries(app, older[-1])["stub"]
    assert (first["status"], first["reason"]) == ("collected", "joins_digest")
    assert datetime.fromisoformat(first["until"]) - datetime.now(UTC) <= timedelta(seconds=6)
    sent = delivery(app, newest, "delivered")
    assert sent["attempt_count"] == 1
    for each in older:
        found = deliveries(app, each)["stub"]
        assert (found["status"], found["attempt_count"]) == ("folded", 0)


def test_a_digest_can_be_daily(app: Asker) -> None:
    order = make_type(app, default_channels=["stub"], digest={"daily_at": "09:00"})
    ana = make_reader(app, "delivered", timezone="Asia/Kathmandu")
    verdict = explain(app, draft(order, user_id=ana) | {"at": "2026-01-10T20:00:00Z"})["stub"]
    assert (verdict["verdict"], verdict["reason"]) == ("fold", "joins_digest")
    assert verdict["until"] == "2026-01-11T03:15:00.000Z"


def test_an_expired_notification_is_not_sent(app: Asker, order: str) -> None:
    """It expires while it is held."""
    ana = make_reader(app, "delivered", quiet_hours=ALWAYS)
    made = send_one(app, order, ana, ttl_s=1)
    expiry = datetime.fromisoformat(see_event_of(app, made)["expires_at"])
    wait_until(lambda: datetime.now(UTC) > expiry or None)
    set_preferences(app, ana, quiet_hours=ANY_HOUR)
    found = delivery(app, made, "expired")
    assert (found["reason"], found["attempt_count"]) == ("expired", 0)


def see_event_of(app: Asker, notification_id: str) -> dict[str, Any]:
    return get_event(app, app.get(f"/v1/notifications/{notification_id}").json["event_id"])


def test_a_held_notification_can_be_cancelled(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered", quiet_hours=ALWAYS)
    event = send_and_wait(app, draft(order, user_id=ana))
    (item,) = inbox(app, ana)
    assert (event["status"], deliveries(app, item["id"])["stub"]["status"]) == ("completed", "held")

    answer = app.delete(f"/v1/events/{event['event_id']}")

    assert (answer.status, answer.json["status"]) == (200, "cancelled")
    found = delivery(app, item["id"], "cancelled")
    assert (found["reason"], found["attempt_count"]) == ("cancelled", 0)
    # The inbox keeps what it shows.
    assert inbox(app, ana) == [item]


def test_the_notifications_of_an_event_are_listed(app: Asker, order: str) -> None:
    on, off = make_reader(app, "delivered"), make_reader(app, "delivered")
    set_preferences(app, off, types={order: {"in_app": False, "stub": False}})
    event = send_and_wait(app, draft(order, user_ids=[on, off]))
    path = f"/v1/events/{event['event_id']}/notifications"

    first = app.get(f"{path}?limit=1").json
    second = app.get(f"{path}?limit=1&after={first['next']}").json

    items = [*first["items"], *second["items"]]
    assert second["next"] is None
    shown = {item["user_id"]: item["is_shown"] for item in items}
    assert shown == {on: True, off: False}
    dropped = next(item for item in items if item["user_id"] == off)
    assert dropped["status"] == "dropped"
    reasons = {each["reason"] for each in deliveries(app, dropped["id"]).values()}
    assert reasons == {"channel_off"}
