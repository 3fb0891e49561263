"""What becomes of a notification on a channel, through a running server and its stub channel."""

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
    inbox,
    make_person,
    make_type,
    say,
    see,
    set_preferences,
    set_stub,
    settled,
    tell,
    timeline,
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
    "status",
    "provider_response",
    "error_code",
    "error_message",
    "attempted_at",
}
HAPPENING = {"at", "what", "channel", "reason", "rule", "until", "detail"}
BOTH = ["in_app", "stub"]
ALWAYS = [True] * 24


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def order(app: Asker) -> str:
    return make_type(app, default_channels=BOTH)


def make_reader(app: Asker, stub: str, **more: Any) -> str:
    """A person whose stub channel answers so."""
    return make_person(app, name="Ana", attributes={"stub": stub}, **more)


def tell_one(app: Asker, order: str, user_id: str, **more: Any) -> str:
    """Tell a person something, and return the id of its notification."""
    tell(app, draft(order, user_id=user_id) | more)
    found: str = inbox(app, user_id)[0]["id"]
    return found


def test_what_was_delivered_says_so_everywhere(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    made = tell_one(app, order, ana)
    found = delivery(app, made, "delivered")
    assert (set(found), set(found["attempts"][0])) == (DELIVERY, ATTEMPT)
    assert (found["attempt_count"], found["provider"], found["reason"]) == (
        1,
        "stub",
        "allowed",
    )
    assert found["attempts"][0]["provider_response"] == "stub: taken"
    assert found["delivered_at"] is not None
    seen = app.get(f"/v1/notifications/{made}").json
    assert (seen["status"], seen["user_id"], seen["is_shown"]) == ("delivered", ana, True)
    story = timeline(app, made)
    assert set(story[0]) == HAPPENING
    assert [each["what"] for each in story if each["channel"] in {None, "stub"}] == [
        "accepted",
        "created",
        "send",
        "attempt 1: delivered",
        "delivered",
    ]
    assert [each["at"] for each in story] == sorted(each["at"] for each in story)


def test_who_reads_it_is_seen_in_its_story(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    made = tell_one(app, order, ana)
    assert app.post(f"/v1/users/{ana}/notifications/{made}/read").status == 200
    found = deliveries(app, made)
    assert found["in_app"]["read_at"] is not None
    assert found["stub"]["read_at"] is None
    assert "read" in [each["what"] for each in timeline(app, made)]


@pytest.mark.parametrize(
    ("address", "reason", "code"),
    [("rejected", "rejected", "rejected"), ("gone", "address_gone", "gone")],
)
def test_what_is_refused_for_good_is_not_tried_again(
    app: Asker, order: str, address: str, reason: str, code: str
) -> None:
    made = tell_one(app, order, make_reader(app, address))
    found = delivery(app, made, "failed")
    assert (found["reason"], found["error_code"], found["attempt_count"]) == (reason, code, 1)
    assert [each["status"] for each in found["attempts"]] == [address]
    status = app.get(f"/v1/notifications/{made}").json["status"]
    assert status == "partially_delivered"


@pytest.mark.parametrize("address", ["retry 1"])
def test_what_fails_once_is_tried_again(app: Asker, order: str, address: str) -> None:
    ana = make_reader(app, address)
    event_id = tell(app, draft(order, user_id=ana))["event_id"]
    made = inbox(app, ana)[0]["id"]
    found = delivery(app, made, "delivered")
    assert [each["status"] for each in found["attempts"]] == ["retry", "delivered"]
    assert (found["attempt_count"], found["error_code"], found["error_message"]) == (2, None, None)
    seen = see(app, event_id)
    assert seen["retry_count"] == 1
    assert "try_later" in seen["last_error"]


def test_a_dead_letter_is_listed_and_replayed(server: Server) -> None:
    """Five tries take about half a minute: two, four, eight and sixteen seconds at most apart."""
    app = server.with_key(server.make_app()["api_key"])
    order = make_type(app, default_channels=BOTH)
    ana = make_reader(app, "retry")
    event_id = say(app, draft(order, user_id=ana))

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


def test_the_stub_asks_for_the_data_of_the_words_it_borrows(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    answer = app.post("/v1/events", draft(order, user_id=ana) | {"channels": ["stub"], "data": {}})
    assert (answer.status, answer.fields) == (422, ["data.order"])


def test_who_has_no_address_is_told_elsewhere(app: Asker, order: str) -> None:
    made = tell_one(app, order, make_person(app))
    found = deliveries(app, made)["stub"]
    assert (found["status"], found["reason"], found["rule"]) == ("dropped", "no_address", "type")
    assert app.get(f"/v1/notifications/{made}").json["status"] == "delivered"


def test_what_is_held_is_released_when_the_person_is_awake(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered", quiet_hours=ALWAYS)
    made = tell_one(app, order, ana)
    found = deliveries(app, made)
    assert found["in_app"]["status"] == "delivered"
    assert (found["stub"]["status"], found["stub"]["reason"]) == ("held", "quiet_hours")
    assert app.get(f"/v1/notifications/{made}").json["status"] == "queued"
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
    heard = explain(app, critical)["stub"]
    assert (heard["verdict"], heard["reason"]) == ("send", "mandatory")
    assert explain(app, draft(order, user_id=ana) | {"at": until})["stub"]["verdict"] == "send"


def test_explain_changes_nothing(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 1})
    ana = make_person(app)
    for _ in range(3):
        assert explain(app, draft(order, user_id=ana))["in_app"]["verdict"] == "send"
    assert inbox(app, ana) == []


def test_explain_knows_what_the_person_switched_off(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered")
    set_preferences(app, ana, types={order: {"in_app": False}})
    assert explain(app, draft(order, user_id=ana))["in_app"]["reason"] == "channel_off"
    set_preferences(app, ana, categories={"transactional": False})
    verdicts = explain(app, draft(order, user_id=ana))
    assert {each["reason"] for each in verdicts.values()} == {"category_off"}
    assert {each["rule"] for each in verdicts.values()} == {"preferences"}


def test_a_repeat_is_dropped(app: Asker) -> None:
    order = make_type(app, dedupe={"window_s": 3600, "mode": "drop"})
    ana, bo = make_person(app), make_person(app)
    repeat = {"dedupe_key": "A-7"}
    assert tell(app, draft(order, user_id=ana) | repeat)["status"] == "completed"
    second = tell(app, draft(order, user_id=ana) | repeat)
    assert second["status"] == "deduplicated"
    assert explain(app, draft(order, user_id=ana) | repeat)["in_app"]["reason"] == "duplicate"
    for other in (draft(order, user_id=bo) | repeat, draft(order, user_id=ana)):
        assert tell(app, other)["status"] == "completed"
    assert (len(inbox(app, ana)), len(inbox(app, bo))) == (2, 1)
    listed = app.get("/v1/events?status=deduplicated&limit=100").json["items"]
    assert second["event_id"] in [each["event_id"] for each in listed]


def test_repeats_are_counted_in_the_unread_one(app: Asker) -> None:
    ana = make_person(app)

    def like(name: str) -> dict[str, Any]:
        event = draft("POST_LIKE", user_id=ana)
        return tell(app, event | {"actor": {"name": name}, "dedupe_key": "p1", "data": {}})

    assert like("Bo")["status"] == "completed"
    assert inbox(app, ana)[0]["body"] == "Bo liked your post"
    assert like("Ana")["status"] == "deduplicated"
    (item,) = inbox(app, ana)
    assert (item["body"], item["count"]) == ("Ana and 1 other liked your post", 2)
    like("Cy")
    (item,) = inbox(app, ana)
    assert (item["body"], item["count"]) == ("Cy and 2 others liked your post", 3)
    app.post(f"/v1/users/{ana}/notifications/{item['id']}/read")
    # What was read is over.
    assert like("Di")["status"] == "completed"
    assert [each["body"] for each in inbox(app, ana)] == ["Di liked your post", item["body"]]


def tell_together(app: Asker, event: dict[str, Any], count: int) -> list[str]:
    """Send the same event many times at once, and return what became of each."""
    answer = app.post("/v1/events/batch", {"events": [event] * count})
    ids = [each["event_id"] for each in answer.json["results"]]
    return [settled(app, each)["status"] for each in ids]


def test_of_repeats_that_come_together_one_is_told(app: Asker) -> None:
    order = make_type(app, dedupe={"window_s": 3600, "mode": "drop"})
    ana = make_person(app)
    statuses = tell_together(app, draft(order, user_id=ana) | {"dedupe_key": "k"}, 30)
    assert (statuses.count("completed"), statuses.count("deduplicated")) == (1, 29)
    assert len(inbox(app, ana)) == 1


def test_repeats_that_come_together_are_all_counted(app: Asker) -> None:
    words = "{{ count }} of {{ order }}"
    order = make_type(app, words, dedupe={"window_s": 3600, "mode": "aggregate"})
    ana = make_person(app)
    statuses = tell_together(app, draft(order, user_id=ana) | {"dedupe_key": "k"}, 30)
    assert (statuses.count("completed"), statuses.count("deduplicated")) == (1, 29)
    (item,) = inbox(app, ana)
    assert (item["count"], item["body"]) == (30, "30 of A-7")


def test_a_limit_is_kept_by_those_that_come_together(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 7})
    ana = make_person(app)
    statuses = tell_together(app, draft(order, user_id=ana), 30)
    # Twice as many if an hour ends just now.
    assert statuses.count("completed") in {7, 14}
    assert len(inbox(app, ana)) == statuses.count("completed")


def test_what_is_over_the_limit_is_dropped(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 2})
    ana = make_person(app)
    statuses = [tell(app, draft(order, user_id=ana))["status"] for _ in range(3)]
    # An hour may end just now.
    assert statuses in (["completed", "completed", "rate_limited"], ["completed"] * 3)
    assert len(inbox(app, ana)) == statuses.count("completed")


def test_what_is_over_the_limit_can_wait(app: Asker) -> None:
    order = make_type(app, rate_limit={"per_user_per_hour": 1, "overflow": "wait"})
    ana = make_person(app)
    events = [say(app, draft(order, user_id=ana)) for _ in range(3)]
    assert {settled(app, each)["status"] for each in events} == {"completed"}
    verdict = explain(app, draft(order, user_id=ana))["in_app"]
    assert (verdict["verdict"], verdict["reason"]) == ("hold", "limit_waits")
    assert datetime.fromisoformat(verdict["until"]).minute == 0


def test_a_digest_says_once_what_was_collected(app: Asker) -> None:
    words = "{{ count }} orders, the last is {{ order }}"
    order = make_type(app, words, default_channels=BOTH, digest={"window_s": 2})
    ana = make_reader(app, "delivered")
    events = [
        say(app, draft(order, user_id=ana) | {"data": {"order": name}}) for name in ("A", "B", "C")
    ]
    for each in events:
        settled(app, each)
    newest, *older = [item["id"] for item in inbox(app, ana)]
    first = deliveries(app, older[-1])["stub"]
    assert (first["status"], first["reason"]) == ("collected", "joins_digest")
    assert datetime.fromisoformat(first["until"]) - datetime.now(UTC) <= timedelta(seconds=2)
    told = delivery(app, newest, "delivered")
    assert told["attempt_count"] == 1
    for each in older:
        found = deliveries(app, each)["stub"]
        assert (found["status"], found["attempt_count"]) == ("folded", 0)


def test_a_digest_can_be_told_daily(app: Asker) -> None:
    order = make_type(app, default_channels=["stub"], digest={"daily_at": "09:00"})
    ana = make_reader(app, "delivered", timezone="Asia/Kathmandu")
    verdict = explain(app, draft(order, user_id=ana) | {"at": "2026-01-10T20:00:00Z"})["stub"]
    assert (verdict["verdict"], verdict["reason"]) == ("fold", "joins_digest")
    assert verdict["until"] == "2026-01-11T03:15:00.000Z"


def test_what_is_too_late_is_not_told(app: Asker, order: str) -> None:
    """Held until somebody wakes up, and by then it does not matter any more."""
    ana = make_reader(app, "delivered", quiet_hours=ALWAYS)
    made = tell_one(app, order, ana, ttl_s=1)
    expiry = datetime.fromisoformat(see_event_of(app, made)["expires_at"])
    wait_until(lambda: datetime.now(UTC) > expiry or None)
    set_preferences(app, ana, quiet_hours=ANY_HOUR)
    found = delivery(app, made, "expired")
    assert (found["reason"], found["attempt_count"]) == ("expired", 0)


def see_event_of(app: Asker, notification_id: str) -> dict[str, Any]:
    return see(app, app.get(f"/v1/notifications/{notification_id}").json["event_id"])


def test_what_waits_can_be_called_back(app: Asker, order: str) -> None:
    ana = make_reader(app, "delivered", quiet_hours=ALWAYS)
    event = tell(app, draft(order, user_id=ana))
    (item,) = inbox(app, ana)
    assert (event["status"], deliveries(app, item["id"])["stub"]["status"]) == ("completed", "held")

    answer = app.delete(f"/v1/events/{event['event_id']}")

    assert (answer.status, answer.json["status"]) == (200, "cancelled")
    found = delivery(app, item["id"], "cancelled")
    assert (found["reason"], found["attempt_count"]) == ("cancelled", 0)
    # What is in the inbox was told, and stays.
    assert inbox(app, ana) == [item]


def test_an_event_leads_to_what_it_came_to(app: Asker, order: str) -> None:
    heard, off = make_reader(app, "delivered"), make_reader(app, "delivered")
    set_preferences(app, off, types={order: {"in_app": False, "stub": False}})
    event = tell(app, draft(order, user_ids=[heard, off]))
    path = f"/v1/events/{event['event_id']}/notifications"

    first = app.get(f"{path}?limit=1").json
    second = app.get(f"{path}?limit=1&after={first['next']}").json

    items = [*first["items"], *second["items"]]
    assert second["next"] is None
    shown = {item["user_id"]: item["is_shown"] for item in items}
    assert shown == {heard: True, off: False}
    dropped = next(item for item in items if item["user_id"] == off)
    assert dropped["status"] == "dropped"
    reasons = {each["reason"] for each in deliveries(app, dropped["id"]).values()}
    assert reasons == {"channel_off"}
