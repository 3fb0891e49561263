"""Decides held notifications again when they are due, with the preferences of that time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clarion.events.batch_view import BatchView
from clarion.events.model import Job, JobOutcome, Reschedule
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.outcomes import claim_limits, find_held_until, make_jobs, shows, update_inbox
from clarion.events.waiting import WaitingNotification, WaitingReader
from clarion.history.model import Delivery, DeliveryStatus
from clarion.pacing import WorkSlices


@dataclass(frozen=True, slots=True)
class Releaser:
    """Handles the jobs of notifications that are held on some channels."""

    waiting: WaitingReader
    writer: OutcomeWriter

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Decide again for jobs of one app. Refused ones are due again when their lease expires."""
        held, outcomes = await self.waiting.read([(job, job.subject) for job in jobs], _is_held)
        batch, slices = BatchView(), WorkSlices()
        for each in held:
            projected = batch.project(each.prepared) or each.prepared
            waiting = replace(each, prepared=projected)
            outcome = await self.writer.run_safely(each.job, release, waiting)
            batch.add(each.prepared.request, outcome)
            outcomes.append(outcome)
            await slices.pause()
        await self.writer.write(outcomes)


def _is_held(_job: Job, delivery: Delivery) -> bool:
    return delivery.status is DeliveryStatus.HELD


async def release(waiting: WaitingNotification) -> JobOutcome:
    """Return the outcome of deciding a held notification again."""
    job, notification, prepared = waiting.job, waiting.notification, waiting.prepared
    decisions = waiting.decide()
    deliveries = waiting.apply(decisions)
    jobs, shared = make_jobs(prepared.request, job.event_id, deliveries)
    held_until = find_held_until(deliveries)
    count, update = notification.count, None
    if shows(decisions):
        update = await update_inbox(prepared, notification.id, count, count, is_new=True)
    return JobOutcome(
        job=job,
        next=None if held_until is None else Reschedule(due_at=held_until),
        limit_claims=claim_limits(prepared, decisions),
        inbox_update=update,
        deliveries=deliveries,
        jobs=jobs,
        shared_jobs=tuple(each for each in shared if each.id != job.id),
    )
