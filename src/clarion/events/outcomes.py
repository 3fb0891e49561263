"""Decisions → rows: the notification, its deliveries, and the following jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from clarion.catalog.model import Channel, RenderedText
from clarion.events.cases import DecisionRequest, PreparedCase
from clarion.events.decide.rules import passes_quiet_hours
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold, Send, Verdict
from clarion.events.model import (
    NEVER,
    AudienceKind,
    DedupeClaim,
    Event,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
    LimitClaim,
)
from clarion.events.rendering import render
from clarion.history.model import Delivery, DeliveryStatus, Notification, ReasonCode
from clarion.inbox.model import InboxUpdate

_PAST_DECISIONS = 20
# The status of an event for one user for whom nothing is sent, by the reason.
_UNSENT = {
    ReasonCode.DUPLICATE: EventStatus.DEDUPLICATED,
    ReasonCode.FOLDED_INTO_UNREAD: EventStatus.DEDUPLICATED,
    ReasonCode.LIMIT_REACHED: EventStatus.RATE_LIMITED,
    ReasonCode.EXPIRED: EventStatus.EXPIRED,
}
_OVER_LIMIT = frozenset({ReasonCode.LIMIT_WAITS, ReasonCode.LIMIT_JOINS_DIGEST})


async def apply_decisions(
    job: Job,
    event: Event,
    prepared: PreparedCase,
    decisions: Sequence[Decision],
    notification_id: str,
) -> JobOutcome:
    """Return the outcome of deciding an event for one user: a new notification."""
    request, earlier, update = prepared.request, prepared.case.earlier, None
    if (folded_into := _find_fold(decisions)) and earlier:
        update = await update_inbox(prepared, folded_into, earlier.count + 1, earlier.count)
    deliveries = tuple(_make_delivery(request, notification_id, each) for each in decisions)
    jobs, shared = make_jobs(request, job.event_id, deliveries)
    return JobOutcome(
        job=job,
        final_status=_final_status(event, decisions),
        dedupe_claim=None if folded_into else _claim_key(prepared, decisions, notification_id),
        limit_claims=claim_limits(prepared, decisions),
        notification=await _make_notification(event, prepared, decisions, notification_id),
        inbox_update=update,
        deliveries=deliveries,
        jobs=jobs,
        shared_jobs=shared,
    )


def _find_fold(decisions: Iterable[Decision]) -> str | None:
    for each in decisions:
        if isinstance(each.verdict, Fold) and each.verdict.into is not None:
            return each.verdict.into
    return None


async def _make_notification(
    event: Event, prepared: PreparedCase, decisions: Sequence[Decision], notification_id: str
) -> Notification:
    request = prepared.request
    title, body = await _inbox_text(prepared, decisions)
    return Notification(
        app_id=request.app_id,
        user_id=request.user_id,
        id=notification_id,
        event_id=event.id,
        type=event.type,
        category=request.entry.type.category,
        priority=request.priority,
        title=title,
        body=body,
        content=request.content,
        is_shown=shows(decisions),
        folded_into=_find_fold(decisions),
        expires_at=request.expires_at,
        created_at=request.now,
    )


def shows(decisions: Iterable[Decision]) -> bool:
    """Whether the inbox shows the notification now."""
    return any(d.channel is Channel.IN_APP and isinstance(d.verdict, Send) for d in decisions)


async def _inbox_text(
    prepared: PreparedCase, decisions: Sequence[Decision]
) -> tuple[str | None, str]:
    """Return title and body for the inbox; empty if it never shows the notification."""
    verdict = next((d.verdict for d in decisions if d.channel is Channel.IN_APP), None)
    if verdict is None or isinstance(verdict, Drop):
        return None, ""
    text = await _render_inbox(prepared, 1)
    return text.subject, text.body


async def _render_inbox(prepared: PreparedCase, count: int) -> RenderedText:
    request = prepared.request
    user = prepared.case.recipient
    return await render(request.entry, Channel.IN_APP, user, request.content, count)


async def update_inbox(
    prepared: PreparedCase,
    notification_id: str,
    count: int,
    expected_count: int,
    *,
    is_new: bool = False,
) -> InboxUpdate:
    """Return the update of a notification to a count; `is_new` if the inbox does not show it."""
    text = await _render_inbox(prepared, count)
    return InboxUpdate(
        id=notification_id,
        title=text.subject,
        body=text.body,
        content=prepared.request.content,
        count=count,
        expected_count=expected_count,
        is_new=is_new,
    )


def _make_delivery(request: DecisionRequest, notification_id: str, decision: Decision) -> Delivery:
    channel, verdict, now = decision.channel, decision.verdict, request.now
    status, until = _status_of(channel, verdict)
    # The commit that adds it to the inbox also sends and delivers it.
    sent_at = now if status is DeliveryStatus.DELIVERED else None
    return Delivery(
        notification_id=notification_id,
        channel=channel,
        app_id=request.app_id,
        user_id=request.user_id,
        status=status,
        reason=verdict.reason,
        rule=decision.rule,
        until=until,
        digest=request.digest_id(channel) if status is DeliveryStatus.COLLECTED else None,
        attempt_count=0 if sent_at is None else 1,
        sent_at=sent_at,
        delivered_at=sent_at,
        last_attempt_at=sent_at,
        decided_at=now,
    )


def redecide(delivery: Delivery, request: DecisionRequest, decision: Decision) -> Delivery:
    """Return a delivery with a new decision; the one before becomes a past decision."""
    new = _make_delivery(request, delivery.notification_id, decision)
    delivery = archive_decision(delivery)
    if new.status is DeliveryStatus.DELIVERED:
        return replace(new, past_decisions=delivery.past_decisions, count=delivery.count)
    return replace(
        delivery,
        status=new.status,
        reason=new.reason,
        rule=new.rule,
        until=new.until,
        digest=new.digest,
        decided_at=new.decided_at,
    )


def cancel(delivery: Delivery, now: int) -> Delivery:
    """Return a delivery whose event was cancelled."""
    return replace(
        archive_decision(delivery),
        status=DeliveryStatus.CANCELLED,
        reason=ReasonCode.CANCELLED,
        rule="cancelled",
        until=None,
        digest=None,
        decided_at=now,
    )


def archive_decision(delivery: Delivery) -> Delivery:
    """Return a delivery whose present decision is among its past ones, too."""
    past = (*delivery.past_decisions, delivery.decision)
    return replace(delivery, past_decisions=past[-_PAST_DECISIONS:])


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


def make_jobs(
    request: DecisionRequest, event_id: str, deliveries: Sequence[Delivery]
) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """Return the jobs that a notification's deliveries need: its own, and shared ones."""
    queued = (d for d in deliveries if d.status is DeliveryStatus.QUEUED)
    own = tuple(make_deliver_job(request, event_id, d) for d in queued)
    shared = [_make_digest_job(request, event_id, d) for d in deliveries if d.digest is not None]
    held_until = find_held_until(deliveries)
    if held_until is not None:
        notification_id = deliveries[0].notification_id
        job_id = f"{notification_id}/held"
        held = _make_job(request, event_id, job_id, JobKind.HELD, held_until, notification_id)
        shared.append(held)
    return own, tuple(shared)


def find_held_until(deliveries: Iterable[Delivery]) -> int | None:
    """Return the earliest time until which one of the deliveries is held; None if none is."""
    held = (d.until or NEVER for d in deliveries if d.status is DeliveryStatus.HELD)
    return min(held, default=None)


def make_deliver_job(request: DecisionRequest, event_id: str, delivery: Delivery) -> Job:
    """Return the job that sends a delivery now."""
    notification_id, channel = delivery.notification_id, delivery.channel
    job_id, subject = f"{notification_id}/{channel}", f"{channel}/{notification_id}"
    job = _make_job(request, event_id, job_id, JobKind.DELIVER, request.now, subject)
    return replace(job, pool=channel.value)


def _make_digest_job(request: DecisionRequest, event_id: str, delivery: Delivery) -> Job:
    due_at = delivery.until if delivery.until is not None else NEVER
    subject = f"{delivery.channel}/{request.entry.type.type}"
    return _make_job(request, event_id, delivery.digest or "", JobKind.DIGEST, due_at, subject)


def _make_job(
    request: DecisionRequest, event_id: str, job_id: str, kind: JobKind, due_at: int, subject: str
) -> Job:
    return Job(
        job_id, request.priority, due_at, kind, request.app_id, event_id, request.user_id, subject
    )


def _claim_key(
    prepared: PreparedCase, decisions: Iterable[Decision], notification_id: str
) -> DedupeClaim | None:
    request, earlier = prepared.request, prepared.case.earlier
    dedupe, key = request.entry.type.dedupe, request.dedupe_id
    if dedupe is None or key is None or all(isinstance(d.verdict, Drop) for d in decisions):
        return None
    return DedupeClaim(
        id=key,
        notification_id=notification_id,
        expected_holder=earlier.notification_id if earlier else None,
        expires_at=request.now + dedupe.window_s * 1000,
    )


def claim_limits(prepared: PreparedCase, decisions: Iterable[Decision]) -> tuple[LimitClaim, ...]:
    """Return a use of each limit that applies; none if the notification is not sent now."""
    case = prepared.case
    if not case.limits or passes_quiet_hours(case):
        return ()
    if not any(_uses_limit(each.verdict) for each in decisions):
        return ()
    end = case.next_hour_at
    return tuple(LimitClaim(id=x.id, limit=x.per_hour, expires_at=end) for x in case.limits)


def _uses_limit(verdict: Verdict) -> bool:
    return verdict.reason not in _OVER_LIMIT and not _is_unsent(verdict)


def _final_status(event: Event, decisions: Sequence[Decision]) -> EventStatus:
    """Return the status of an event after its last decision.

    An event for a single user shows why nothing was sent.
    """
    verdicts = [each.verdict for each in decisions]
    if event.audience.kind is not AudienceKind.USER or not all(map(_is_unsent, verdicts)):
        return EventStatus.COMPLETED
    reasons = {each.reason for each in verdicts}
    found = (status for reason, status in _UNSENT.items() if reason in reasons)
    return next(found, EventStatus.COMPLETED)


def _is_unsent(verdict: Verdict) -> bool:
    """Whether nothing of its own is ever sent: dropped, or part of another notification."""
    return isinstance(verdict, Drop) or (isinstance(verdict, Fold) and verdict.into is not None)
