"""The timeline of a notification: everything that is stored about it, oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from clarion.catalog.model import Channel
from clarion.events.model import Event
from clarion.history.model import Attempt, Delivery, DeliveryStatus, Notification, ReasonCode

# What a decision is called by the status that it gave the delivery.
_VERDICTS = {
    DeliveryStatus.QUEUED: "send",
    DeliveryStatus.SENT: "send",
    DeliveryStatus.DELIVERED: "send",
    DeliveryStatus.HELD: "hold",
    DeliveryStatus.COLLECTED: "fold",
    DeliveryStatus.FOLDED: "fold",
    DeliveryStatus.FAILED: "failed",
    DeliveryStatus.EXPIRED: "drop",
    DeliveryStatus.CANCELLED: "drop",
    DeliveryStatus.DROPPED: "drop",
}
# The outcome of an attempt.
_RESULTS = frozenset({"delivered", "failed"})


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a timeline."""

    at: int
    what: str
    channel: Channel | None = None
    reason: ReasonCode | None = None
    rule: str | None = None
    until: int | None = None
    detail: str | None = None


def build_timeline(
    event: Event | None,
    notification: Notification,
    deliveries: Iterable[Delivery],
    attempts: Iterable[Attempt],
) -> list[TimelineEntry]:
    """Return the entries, oldest first; at the same time, causes come before results."""
    decided = [each for delivery in deliveries for each in _of_delivery(delivery)]
    entries = [
        *_of_event(event),
        TimelineEntry(at=notification.created_at, what="created"),
        *(each for each in decided if each.what not in _RESULTS),
        *map(_of_attempt, attempts),
        *(each for each in decided if each.what in _RESULTS),
        *_of_user(notification),
    ]
    return sorted(entries, key=lambda each: each.at)


def _of_event(event: Event | None) -> Iterator[TimelineEntry]:
    if event is None:
        return
    yield TimelineEntry(at=event.created_at, what="accepted")
    if event.scheduled_at is not None:
        yield TimelineEntry(at=event.created_at, what="scheduled", until=event.scheduled_at)


def _of_attempt(attempt: Attempt) -> TimelineEntry:
    return TimelineEntry(
        at=attempt.attempted_at,
        what=f"attempt {attempt.number}: {attempt.status}",
        channel=attempt.channel,
        detail=attempt.error_message or attempt.provider_response,
    )


def _of_delivery(delivery: Delivery) -> Iterator[TimelineEntry]:
    for past in (*delivery.past_decisions, delivery.decision):
        yield TimelineEntry(
            at=past.at,
            what=_VERDICTS[past.status],
            channel=delivery.channel,
            reason=past.reason,
            rule=past.rule,
            until=past.until,
        )
    if delivery.delivered_at is not None:
        yield TimelineEntry(at=delivery.delivered_at, what="delivered", channel=delivery.channel)


def _of_user(notification: Notification) -> Iterator[TimelineEntry]:
    if notification.read_at is not None:
        yield TimelineEntry(at=notification.read_at, what="read", channel=Channel.IN_APP)
    if notification.dismissed_at is not None:
        yield TimelineEntry(at=notification.dismissed_at, what="dismissed", channel=Channel.IN_APP)
