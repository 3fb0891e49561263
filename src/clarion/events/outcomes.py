"""Verdicts → what is written: the notification, its deliveries, and the work that follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clarion.catalog.model import Channel
from clarion.events.cases import HOUR_MS
from clarion.events.decide.rules import passes_quiet_hours
from clarion.events.decide.verdicts import Drop, Fold, Hold, Send
from clarion.events.model import (
    AudienceKind,
    DedupeClaim,
    Delivery,
    DeliveryStatus,
    Entry,
    EventStatus,
    InboxUpdate,
    Job,
    JobKind,
    LimitClaim,
    Notification,
    PastDecision,
    ReasonCode,
)
from clarion.events.wording import word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clarion.catalog.model import Priority
    from clarion.events.cases import Ask, Brief
    from clarion.events.decide.verdicts import Decision, Verdict
    from clarion.events.model import Earlier, Event

# Later than any clock shows: held until a preference changes.
NEVER = 1 << 62
_STORY_LENGTH = 20
_OVER = {
    ReasonCode.DUPLICATE: EventStatus.DEDUPLICATED,
    ReasonCode.FOLDED_INTO_UNREAD: EventStatus.DEDUPLICATED,
    ReasonCode.LIMIT_REACHED: EventStatus.RATE_LIMITED,
    ReasonCode.EXPIRED: EventStatus.EXPIRED,
}
_LIMITED = frozenset({ReasonCode.LIMIT_WAITS, ReasonCode.LIMIT_JOINS_DIGEST})


def rule(
    job: Job, event: Event, brief: Brief, decisions: Sequence[Decision], notification_id: str
) -> Entry:
    """Return what a new notification comes to."""
    ask = brief.ask
    folded = _find_fold(decisions)
    deliveries = tuple(_deliver(ask, notification_id, each) for each in decisions)
    jobs, shared = follow_up(ask, job.event_id, notification_id, deliveries)
    return Entry(
        job=job,
        settles=_final_status(event, decisions),
        dedupe=None if folded else _claim_key(brief, decisions, notification_id),
        limits=claim_uses(brief, decisions),
        added=_notification(event, brief, decisions, notification_id),
        inbox_update=_tell_more(brief, brief.earlier) if folded and brief.earlier else None,
        deliveries=deliveries,
        jobs=jobs,
        shared_jobs=shared,
    )


def _find_fold(decisions: Iterable[Decision]) -> str | None:
    for each in decisions:
        if isinstance(each.verdict, Fold) and each.verdict.into is not None:
            return each.verdict.into
    return None


def _notification(
    event: Event, brief: Brief, decisions: Sequence[Decision], notification_id: str
) -> Notification:
    ask = brief.ask
    title, body = _inbox_words(brief, decisions)
    return Notification(
        app_id=ask.app_id,
        user_id=ask.user_id,
        id=notification_id,
        event_id=event.id,
        type=event.type,
        category=ask.kind.type.category,
        priority=ask.priority,
        title=title,
        body=body,
        content=ask.content,
        is_shown=any(
            d.channel is Channel.IN_APP and isinstance(d.verdict, Send) for d in decisions
        ),
        folded_into=_find_fold(decisions),
        expires_at=ask.expires_at,
        created_at=ask.now,
    )


def shows(decisions: Iterable[Decision]) -> bool:
    """Whether it is in the inbox now."""
    return any(d.channel is Channel.IN_APP and isinstance(d.verdict, Send) for d in decisions)


def _inbox_words(brief: Brief, decisions: Sequence[Decision]) -> tuple[str | None, str]:
    """Return what the inbox says, or will; nothing if it never does."""
    ask = brief.ask
    verdict = next((d.verdict for d in decisions if d.channel is Channel.IN_APP), None)
    if brief.user is None or verdict is None or isinstance(verdict, Drop):
        return None, ""
    words = word(ask.kind, Channel.IN_APP, brief.user, ask.content, 1)
    return words.subject, words.body


def _tell_more(brief: Brief, earlier: Earlier) -> InboxUpdate | None:
    """Return the unread notification's new words, with one more counted."""
    return tell(brief, earlier.notification_id, earlier.count + 1, earlier.count, is_first=False)


def tell(
    brief: Brief, notification_id: str, count: int, seen: int, *, is_first: bool
) -> InboxUpdate | None:
    """Return new words for what is, or comes, in the inbox."""
    if brief.user is None:
        return None
    ask = brief.ask
    words = word(ask.kind, Channel.IN_APP, brief.user, ask.content, count)
    return InboxUpdate(
        id=notification_id,
        title=words.subject,
        body=words.body,
        content=ask.content,
        count=count,
        seen=seen,
        is_first=is_first,
    )


def _deliver(ask: Ask, notification_id: str, decision: Decision) -> Delivery:
    channel, verdict, now = decision.channel, decision.verdict, ask.now
    status, until = _status_of(channel, verdict)
    # What comes into the inbox with this commit is sent and delivered by it.
    sent_at = now if status is DeliveryStatus.DELIVERED else None
    return Delivery(
        notification_id=notification_id,
        channel=channel,
        app_id=ask.app_id,
        user_id=ask.user_id,
        status=status,
        reason=verdict.reason,
        rule=decision.rule,
        until=until,
        digest=ask.digest_id(channel) if status is DeliveryStatus.COLLECTED else None,
        attempt_count=0 if sent_at is None else 1,
        sent_at=sent_at,
        delivered_at=sent_at,
        last_attempt_at=sent_at,
        decided_at=now,
    )


def apply(delivery: Delivery, ask: Ask, decision: Decision) -> Delivery:
    """Return the delivery with a verdict carried out on it."""
    fresh = _deliver(ask, delivery.notification_id, decision)
    if fresh.status is DeliveryStatus.DELIVERED:
        return replace(fresh, past_decisions=delivery.past_decisions, count=delivery.count)
    return replace(
        delivery,
        status=fresh.status,
        reason=fresh.reason,
        rule=fresh.rule,
        until=fresh.until,
        digest=fresh.digest,
        decided_at=fresh.decided_at,
    )


def turn(delivery: Delivery, ask: Ask, decision: Decision) -> Delivery:
    """Return a delivery that waited with a new verdict; what was decided before is its story."""
    return apply(remember(delivery), ask, decision)


def remember(delivery: Delivery) -> Delivery:
    """Return a delivery whose present state is part of its story."""
    d = delivery
    past = PastDecision(d.decided_at, d.status, d.reason, d.rule, d.until)
    return replace(d, past_decisions=(*d.past_decisions, past)[-_STORY_LENGTH:])


def _status_of(channel: Channel, verdict: Verdict) -> tuple[DeliveryStatus, int | None]:
    match verdict:
        case Send():
            is_inbox = channel is Channel.IN_APP
            return (DeliveryStatus.DELIVERED if is_inbox else DeliveryStatus.QUEUED), None
        case Hold(until=until):
            return DeliveryStatus.HELD, until
        case Fold(into=None, until=until):
            return DeliveryStatus.COLLECTED, until
        case Fold():
            return DeliveryStatus.FOLDED, None
        case Drop(reason=ReasonCode.EXPIRED):
            return DeliveryStatus.EXPIRED, None
        case Drop(reason=ReasonCode.CANCELLED):
            return DeliveryStatus.CANCELLED, None
        case Drop():
            return DeliveryStatus.DROPPED, None


def follow_up(
    ask: Ask, event_id: str, notification_id: str, deliveries: Sequence[Delivery]
) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """Return the work that deliveries ask for: of their own, and shared with others."""
    own = [
        deliver_job(ask, event_id, d.notification_id, d.channel)
        for d in deliveries
        if d.status is DeliveryStatus.QUEUED
    ]
    shared = [_digest_job(ask, event_id, d) for d in deliveries if d.digest is not None]
    held = [d.until or NEVER for d in deliveries if d.status is DeliveryStatus.HELD]
    if held:
        shared.append(held_job(ask, event_id, notification_id, min(held)))
    return tuple(own), tuple(shared)


def deliver_job(ask: Ask, event_id: str, notification_id: str, channel: Channel) -> Job:
    """Return the job that sends a notification over a channel, now."""
    subject = f"{channel}/{notification_id}"
    return _job(ask, event_id, f"{notification_id}/{channel}", JobKind.DELIVER, ask.now, subject)


def held_job(ask: Ask, event_id: str, notification_id: str, due_at: int) -> Job:
    """Return the job that decides anew for what is held."""
    return _job(ask, event_id, f"{notification_id}/held", JobKind.HELD, due_at, notification_id)


def _digest_job(ask: Ask, event_id: str, delivery: Delivery) -> Job:
    due_at = delivery.until if delivery.until is not None else NEVER
    subject = f"{delivery.channel}/{ask.kind.type.type}"
    return _job(ask, event_id, delivery.digest or "", JobKind.DIGEST, due_at, subject)


def _job(ask: Ask, event_id: str, job_id: str, kind: JobKind, due_at: int, subject: str) -> Job:
    lane: Priority = ask.priority
    return Job(job_id, lane, due_at, kind, ask.app_id, event_id, ask.user_id, subject)


def _claim_key(
    brief: Brief, decisions: Iterable[Decision], notification_id: str
) -> DedupeClaim | None:
    ask, dedupe = brief.ask, brief.ask.kind.type.dedupe
    key = ask.dedupe_id
    if dedupe is None or key is None or all(isinstance(d.verdict, Drop) for d in decisions):
        return None
    return DedupeClaim(
        id=key,
        notification_id=notification_id,
        seen=brief.earlier.notification_id if brief.earlier else None,
        expires_at=ask.now + dedupe.window_s * 1000,
    )


def claim_uses(brief: Brief, decisions: Iterable[Decision]) -> tuple[LimitClaim, ...]:
    """Return the use of limits that a notification takes; none if it is heard whatever it is."""
    case = brief.case
    if not case.limits or passes_quiet_hours(case):
        return ()
    if not any(_takes_use(each.verdict) for each in decisions):
        return ()
    end = (brief.ask.now // HOUR_MS + 1) * HOUR_MS
    return tuple(
        LimitClaim(id=each.id, limit=each.per_hour, expires_at=end) for each in case.limits
    )


def _takes_use(verdict: Verdict) -> bool:
    if isinstance(verdict, Drop) or verdict.reason in _LIMITED:
        return False
    return not (isinstance(verdict, Fold) and verdict.into is not None)


def _final_status(event: Event, decisions: Sequence[Decision]) -> EventStatus:
    """Return what an event becomes; one for a single person says why nothing was sent."""
    if event.audience.kind is not AudienceKind.USER or any(map(_says_something, decisions)):
        return EventStatus.COMPLETED
    reasons = {each.verdict.reason for each in decisions}
    return next((status for why, status in _OVER.items() if why in reasons), EventStatus.COMPLETED)


def _says_something(decision: Decision) -> bool:
    verdict = decision.verdict
    return not (isinstance(verdict, Drop) or (isinstance(verdict, Fold) and verdict.into))
