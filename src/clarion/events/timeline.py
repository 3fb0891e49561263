"""The story of a notification: everything that is written about it, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.catalog.model import Channel
from clarion.events.model import DeliveryStatus, PastDecision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clarion.events.model import Attempt, Delivery, Event, Notification, ReasonCode

# What a delivery's state is called when it was decided.
_VERDICTS = {
    DeliveryStatus.QUEUED: "send",
    DeliveryStatus.DELIVERED: "send",
    DeliveryStatus.HELD: "hold",
    DeliveryStatus.COLLECTED: "fold",
    DeliveryStatus.FOLDED: "fold",
    DeliveryStatus.FAILED: "failed",
    DeliveryStatus.EXPIRED: "drop",
    DeliveryStatus.CANCELLED: "drop",
    DeliveryStatus.DROPPED: "drop",
}

# What an attempt leads to.
_ENDS = frozenset({"delivered", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of the story."""

    at: int
    what: str
    channel: Channel | None = None
    reason: ReasonCode | None = None
    rule: str | None = None
    until: int | None = None
    detail: str | None = None


def tell_story(
    event: Event | None,
    notification: Notification,
    deliveries: Iterable[Delivery],
    attempts: Iterable[Attempt],
) -> list[Happening]:
    """Return what happened, oldest first; of one moment, what led to the rest comes first."""
    told = [each for delivery in deliveries for each in _of_delivery(delivery)]
    story = [
        *_of_event(event),
        Happening(at=notification.created_at, what="created"),
        *(each for each in told if each.what not in _ENDS),
        *map(_of_attempt, attempts),
        *(each for each in told if each.what in _ENDS),
        *_of_person(notification),
    ]
    return sorted(story, key=lambda each: each.at)


def _of_event(event: Event | None) -> Iterator[Happening]:
    if event is None:
        return
    yield Happening(at=event.created_at, what="accepted")
    if event.scheduled_at is not None:
        yield Happening(at=event.created_at, what="scheduled", until=event.scheduled_at)


def _of_attempt(attempt: Attempt) -> Happening:
    return Happening(
        at=attempt.attempted_at,
        what=f"attempt {attempt.number}: {attempt.status}",
        channel=attempt.channel,
        detail=attempt.error_message or attempt.provider_response,
    )


def _of_delivery(delivery: Delivery) -> Iterator[Happening]:
    now = PastDecision(
        delivery.decided_at, delivery.status, delivery.reason, delivery.rule, delivery.until
    )
    for past in (*delivery.past_decisions, now):
        yield Happening(
            at=past.at,
            what=_VERDICTS[past.status],
            channel=delivery.channel,
            reason=past.reason,
            rule=past.rule,
            until=past.until,
        )
    if delivery.delivered_at is not None:
        yield Happening(at=delivery.delivered_at, what="delivered", channel=delivery.channel)


def _of_person(notification: Notification) -> Iterator[Happening]:
    if notification.read_at is not None:
        yield Happening(at=notification.read_at, what="read", channel=Channel.IN_APP)
    if notification.dismissed_at is not None:
        yield Happening(at=notification.dismissed_at, what="dismissed", channel=Channel.IN_APP)
