"""The timeline of a notification, oldest entry first."""

import pytest

from clarion.catalog.model import Channel
from clarion.events.timeline import build_timeline
from clarion.history.model import Attempt, DeliveryStatus, PastDecision, ReasonCode
from tests.factories import NOW
from tests.pipeline import make_delivery, make_event, make_notification

EVENT = make_event(scheduled_at=NOW + 100)
NOTIFICATION = make_notification(EVENT, created_at=NOW + 100)
QUIET = PastDecision(
    NOW + 100, DeliveryStatus.HELD, ReasonCode.QUIET_HOURS, "quiet_hours", until=NOW + 500
)


def make_attempt(number: int, status: str, at: int, **texts: str) -> Attempt:
    nothing = {"provider_response": None, "error_code": None, "error_message": None}
    return Attempt(
        notification_id=NOTIFICATION.id,
        channel=Channel.STUB,
        number=number,
        device_id="",
        status=status,
        attempted_at=at,
        **nothing | texts,
    )


def test_it_begins_with_the_event() -> None:
    delivery = make_delivery(
        NOTIFICATION,
        status=DeliveryStatus.DELIVERED,
        past_decisions=(QUIET,),
        decided_at=NOW + 500,
        delivered_at=NOW + 502,
    )
    attempts = [
        make_attempt(2, "delivered", NOW + 502, provider_response="accepted"),
        make_attempt(1, "retry", NOW + 501, error_code="x", error_message="not now"),
    ]
    timeline = build_timeline(EVENT, NOTIFICATION, [delivery], attempts)
    assert [(each.at - NOW, each.what, each.detail) for each in timeline] == [
        (0, "accepted", None),
        (0, "scheduled", None),
        (100, "created", None),
        (100, "hold", None),
        (500, "send", None),
        (501, "attempt 1: retry", "not now"),
        (502, "attempt 2: delivered", "accepted"),
        (502, "delivered", None),
    ]
    hold, send = timeline[3:5]
    assert (hold.reason, hold.rule, hold.until) == ("quiet_hours", "quiet_hours", NOW + 500)
    assert (send.reason, send.until, send.channel) == ("allowed", None, Channel.STUB)
    assert timeline[1].until == EVENT.scheduled_at


def test_a_last_attempt_comes_before_its_failure() -> None:
    failed = make_delivery(
        NOTIFICATION,
        status=DeliveryStatus.FAILED,
        reason=ReasonCode.ATTEMPTS_EXHAUSTED,
        decided_at=NOW + 200,
    )
    timeline = build_timeline(EVENT, NOTIFICATION, [failed], [make_attempt(5, "retry", NOW + 200)])
    assert [each.what for each in timeline][-2:] == ["attempt 5: retry", "failed"]


def test_reading_and_dismissing_are_entries() -> None:
    seen = make_notification(EVENT, read_at=NOW + 300, dismissed_at=NOW + 400)
    timeline = build_timeline(EVENT, seen, [], [])
    assert [(each.what, each.channel) for each in timeline[-2:]] == [
        ("read", Channel.IN_APP),
        ("dismissed", Channel.IN_APP),
    ]


def test_the_event_may_be_deleted() -> None:
    assert [each.what for each in build_timeline(None, NOTIFICATION, [], [])] == ["created"]


@pytest.mark.parametrize("status", DeliveryStatus)
def test_every_status_has_an_entry(status: DeliveryStatus) -> None:
    delivery = make_delivery(NOTIFICATION, status=status, decided_at=NOW + 200)
    (_, decided) = build_timeline(None, NOTIFICATION, [delivery], [])
    assert decided.what in {"send", "hold", "fold", "drop", "failed"}
