"""Sends what was collected for a digest as one message when the digest is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from clarion.catalog.model import Channel
from clarion.events.decide.digests import find_due
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold
from clarion.events.model import (
    NEVER,
    Delivery,
    DeliveryStatus,
    Job,
    JobOutcome,
    ReasonCode,
    Reschedule,
)
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.outcomes import archive_decision, make_deliver_job, update_inbox
from clarion.events.port import Deliveries
from clarion.events.waiting import WaitingNotification, WaitingReader

# A digest takes in at most this many; the rest is the next digest.
DIGEST_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Digester:
    """Handles the jobs of digests."""

    deliveries: Deliveries
    waiting: WaitingReader
    writer: OutcomeWriter

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Send the digests one by one: they are few."""
        for job in jobs:
            collected = await self.deliveries.list_collected(
                job.app_id, job.user_id, job.id, DIGEST_LIMIT
            )
            await self.writer.write([await self._digest(job, collected)])

    async def _digest(self, job: Job, collected: tuple[Delivery, ...]) -> JobOutcome:
        if not collected:
            return JobOutcome(job=job)
        pairs = [(job, each.notification_id) for each in collected]
        parts, _ = await self.waiting.read(pairs, _is_collected)
        if not parts:
            return _drop_all(job, collected)
        return await self.writer.run_safely(job, digest, job, parts)


def _is_collected(job: Job, delivery: Delivery) -> bool:
    return delivery.status is DeliveryStatus.COLLECTED and delivery.digest == job.id


async def digest(job: Job, parts: Sequence[WaitingNotification]) -> JobOutcome:
    """Return the outcome of a digest: the newest part is sent for all, the others join it.

    Each part is decided by itself: one may be cancelled or expired while the others are sent.
    """
    dues = [_find_due(part) for part in parts]
    if min(dues) > parts[0].prepared.request.now and len(parts) < DIGEST_LIMIT:
        # A change of preferences woke it too early; they count when the digest is due.
        return _wait(job, parts, dues)
    dropped: list[Delivery] = []
    left: list[tuple[WaitingNotification, Decision]] = []
    for part in parts:
        (decision,) = part.decide()
        if isinstance(decision.verdict, Drop):
            dropped += part.apply([decision])
        else:
            left.append((part, decision))
    if not left:
        return JobOutcome(job=job, deliveries=tuple(dropped))
    lead, decision = left[0]
    if isinstance(decision.verdict, Hold):
        until = decision.verdict.until
        again = Reschedule(due_at=NEVER if until is None else until)
        return JobOutcome(job=job, next=again, deliveries=tuple(dropped))
    return await _send(job, lead, decision, [part for part, _ in left[1:]], dropped)


def _find_due(part: WaitingNotification) -> int:
    """Return when a part is due: if daily, at that time where the user is now."""
    (delivery,), user, digest = part.deliveries, part.prepared.case.user, part.digest
    is_digest = delivery.reason is ReasonCode.JOINS_DIGEST
    if digest is None or digest.daily_at is None or user is None or not is_digest:
        return delivery.until or 0
    return find_due(digest, delivery.decided_at, user.timezone)


def _wait(job: Job, parts: Sequence[WaitingNotification], dues: Sequence[int]) -> JobOutcome:
    """Return the outcome of a digest that is not due yet, with the times that have changed."""
    pairs = [(part.deliveries[0], due_at) for part, due_at in zip(parts, dues, strict=True)]
    moved = tuple(replace(each, until=due_at) for each, due_at in pairs if each.until != due_at)
    return JobOutcome(job=job, next=Reschedule(due_at=min(dues)), deliveries=moved)


async def _send(
    job: Job,
    lead: WaitingNotification,
    decision: Decision,
    others: Sequence[WaitingNotification],
    dropped: Sequence[Delivery],
) -> JobOutcome:
    count, channel, notification = len(others) + 1, decision.channel, lead.notification
    (first,) = lead.apply([decision])
    first = replace(first, count=count)
    fold = Decision(channel, Fold(ReasonCode.JOINS_DIGEST, into=notification.id), "digest")
    joined = (delivery for part in others for delivery in part.apply([fold]))
    outcome = JobOutcome(job=job, deliveries=(first, *joined, *dropped))
    if channel is Channel.IN_APP:
        expected = notification.count
        update = await update_inbox(lead.prepared, notification.id, count, expected, is_new=True)
        return replace(outcome, inbox_update=update)
    send = make_deliver_job(lead.prepared.request, notification.event_id, first)
    return replace(outcome, jobs=(send,))


def _drop_all(job: Job, collected: tuple[Delivery, ...]) -> JobOutcome:
    """Return the outcome of a digest whose notifications or type were deleted."""
    dropped = tuple(
        replace(
            archive_decision(each),
            status=DeliveryStatus.DROPPED,
            reason=ReasonCode.TYPE_INACTIVE,
            until=None,
            digest=None,
        )
        for each in collected
    )
    return JobOutcome(job=job, deliveries=dropped)
