"""Sends what was collected for a digest as one message when the digest is due."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from clarion.catalog.model import Channel
from clarion.events.decide.rules import decide
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold
from clarion.events.model import NEVER, DeliveryStatus, JobOutcome, ReasonCode, Reschedule
from clarion.events.outcomes import (
    archive_decision,
    cancel,
    make_deliver_job,
    redecide,
    update_inbox,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.events.cases import CaseReader, PreparedCase
    from clarion.events.model import Delivery, Job
    from clarion.events.outcome_writer import OutcomeWriter
    from clarion.events.port import Deliveries
    from clarion.events.waiting import WaitingNotification, WaitingReader

# A digest takes in at most this many; the rest is the next digest.
DIGEST_LIMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Digester:
    """Handles the jobs of digests."""

    deliveries: Deliveries
    waiting: WaitingReader
    cases: CaseReader
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
        found, _ = await self.waiting.read([(job, each.notification_id) for each in collected])
        by_id = {each.notification.id: each for each in found}
        known = [(each, by_id[i]) for each in collected if (i := each.notification_id) in by_id]
        if not known:
            return _drop_all(job, collected)
        cases = await self.cases.read(
            [self.waiting.make_request(w, (each,), was_collected=True) for each, w in known]
        )
        parts = [_Part(d, w, case) for (d, w), case in zip(known, cases, strict=True)]
        return self.writer.run_safely(job, digest, job, parts)


class _Part(NamedTuple):
    """One collected delivery."""

    delivery: Delivery
    waiting: WaitingNotification
    prepared: PreparedCase

    def decide(self) -> Decision:
        is_cancelled = self.waiting.is_cancelled
        (decision,) = cancel(self.prepared) if is_cancelled else decide(self.prepared.case)
        return decision

    def redecide(self, decision: Decision) -> Delivery:
        return redecide(self.delivery, self.prepared.request, decision)


def digest(job: Job, parts: Sequence[_Part]) -> JobOutcome:
    """Return the outcome of a digest: the newest part is sent for all, the others join it.

    Each part is decided by itself: one may be cancelled or expired while the others are sent.
    """
    due_at = min(part.delivery.until or 0 for part in parts)
    if due_at > parts[0].prepared.request.now and len(parts) < DIGEST_LIMIT:
        # A change of preferences woke it too early; they count when the digest is due.
        return JobOutcome(job=job, next=Reschedule(due_at=due_at))
    decided = [(part, part.decide()) for part in parts]
    dropped = tuple(part.redecide(d) for part, d in decided if isinstance(d.verdict, Drop))
    left = [(part, d) for part, d in decided if not isinstance(d.verdict, Drop)]
    if not left:
        return JobOutcome(job=job, deliveries=dropped)
    lead, decision = left[0]
    if isinstance(decision.verdict, Hold):
        until = decision.verdict.until
        again = Reschedule(due_at=NEVER if until is None else until)
        return JobOutcome(job=job, next=again, deliveries=dropped)
    return _send(job, lead, decision, [part for part, _ in left], dropped)


def _send(
    job: Job,
    lead: _Part,
    decision: Decision,
    parts: Sequence[_Part],
    dropped: tuple[Delivery, ...],
) -> JobOutcome:
    count, channel, prepared = len(parts), decision.channel, lead.prepared
    notification = lead.waiting.notification
    first = replace(lead.redecide(decision), count=count)
    fold = Decision(channel, Fold(ReasonCode.JOINS_DIGEST, into=notification.id), "digest")
    others = (redecide(part.delivery, prepared.request, fold) for part in parts[1:])
    outcome = JobOutcome(job=job, deliveries=(first, *others, *dropped))
    if channel is Channel.IN_APP:
        update = update_inbox(prepared, notification.id, count, notification.count, is_new=True)
        return replace(outcome, inbox_update=update)
    send = make_deliver_job(prepared.request, notification.event_id, first)
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
