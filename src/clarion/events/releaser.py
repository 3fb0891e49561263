"""Decides held notifications again when they are due, with the preferences of that time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.events.batch_view import BatchView
from clarion.events.decide.rules import decide
from clarion.events.model import DeliveryStatus, JobOutcome, Reschedule
from clarion.events.outcomes import (
    cancel,
    claim_limits,
    find_held_until,
    make_jobs,
    redecide,
    shows,
    update_inbox,
)
from clarion.events.waiting import by_channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.events.cases import CaseReader, PreparedCase
    from clarion.events.model import Delivery, InboxUpdate, Job
    from clarion.events.outcome_writer import OutcomeWriter
    from clarion.events.waiting import WaitingNotification, WaitingReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Releaser:
    """Handles the jobs of notifications that are held on some channels."""

    waiting: WaitingReader
    cases: CaseReader
    writer: OutcomeWriter

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Decide again for jobs of one app. Refused ones are due again when their lease expires."""
        found, outcomes = await self.waiting.read([(job, job.subject) for job in jobs])
        outcomes += [JobOutcome(job=each.job) for each in found if not _held(each)]
        held = [each for each in found if _held(each)]
        cases = await self.cases.read(
            [
                self.waiting.make_request(each, _held(each), was_collected=_was_collected(each))
                for each in held
            ]
        )
        batch = BatchView()
        for waiting, prepared in zip(held, cases, strict=True):
            projected = batch.project(prepared) or prepared
            outcome = self.writer.run_safely(waiting.job, release, waiting, projected)
            batch.add(prepared.request, outcome)
            outcomes.append(outcome)
        await self.writer.write(outcomes)


def _held(waiting: WaitingNotification) -> tuple[Delivery, ...]:
    return tuple(d for d in waiting.deliveries if d.status is DeliveryStatus.HELD)


def _was_collected(waiting: WaitingNotification) -> bool:
    """Whether it is a digest: collected again, it would count as one notification."""
    past_decisions = (past for each in _held(waiting) for past in each.past_decisions)
    return any(past.status is DeliveryStatus.COLLECTED for past in past_decisions)


def release(waiting: WaitingNotification, prepared: PreparedCase) -> JobOutcome:
    """Return the outcome of deciding a held notification again."""
    held, job = by_channel(_held(waiting)), waiting.job
    decisions = cancel(prepared) if waiting.is_cancelled else decide(prepared.case)
    deliveries = tuple(redecide(held[d.channel], prepared.request, d) for d in decisions)
    jobs, shared = make_jobs(prepared.request, job.event_id, deliveries)
    held_until = find_held_until(deliveries)
    return JobOutcome(
        job=job,
        next=None if held_until is None else Reschedule(due_at=held_until),
        limit_claims=claim_limits(prepared, decisions),
        inbox_update=_show(waiting, prepared) if shows(decisions) else None,
        deliveries=deliveries,
        jobs=jobs,
        shared_jobs=tuple(each for each in shared if each.id != job.id),
    )


def _show(waiting: WaitingNotification, prepared: PreparedCase) -> InboxUpdate | None:
    count = waiting.notification.count
    return update_inbox(prepared, waiting.notification.id, count, count, is_new=True)
