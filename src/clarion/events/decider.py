"""Decides events for users, and writes one outcome each. Those that are refused decide again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clarion.catalog.port import CatalogEntry
from clarion.events.batch_view import BatchView
from clarion.events.cases import CaseReader, DecisionRequest, PreparedCase
from clarion.events.decide.rules import decide
from clarion.events.model import Event, EventStatus, Job, JobOutcome, Reschedule
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.outcomes import apply_decisions
from clarion.events.port import PipelinePorts, Undecided
from clarion.events.waiting import fail_without_type
from clarion.pacing import WorkSlices, read_in_chunks

# A batch can hold many events for one user, which refuse each other. After this number of rounds
# they go back to the queue, and other jobs come first.
ROUNDS = 20
# How long the slow templates of an app may hold a worker; then other jobs come first.
RENDERING_S = 1.0
LATER_MS = 1_000


@dataclass(frozen=True, slots=True)
class Decider:
    """Handles the jobs that decide one event for one user."""

    ports: PipelinePorts
    cases: CaseReader
    writer: OutcomeWriter

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Decide for jobs of one app."""
        await self._decide(await self._with_events(jobs))

    async def handle_accepted(self, pairs: Sequence[tuple[Job, Event]]) -> None:
        """Decide for events of one app that this process has just accepted."""
        await self._decide(pairs)

    async def _with_events(self, jobs: Sequence[Job]) -> list[tuple[Job, Event | None]]:
        events: dict[str, Event] = {}

        async def read(ids: Sequence[str]) -> None:
            events.update(await self.ports.events.find_many(jobs[0].app_id, ids))

        await read_in_chunks(sorted({job.event_id for job in jobs}), read)
        return [(job, events.get(job.event_id)) for job in jobs]

    async def _decide(self, pairs: Iterable[tuple[Job, Event | None]]) -> None:
        left = await self._decide_round(pairs)
        for _ in range(ROUNDS):
            if not left:
                return
            left = await self._decide_round(await self._with_events(left))
        again = Reschedule(due_at=self.ports.clock.now())
        await self.writer.write([JobOutcome(job=job, next=again) for job in left])

    async def _decide_round(self, pairs: Iterable[tuple[Job, Event | None]]) -> list[Job]:
        """Decide for all that can be decided now; return the jobs that are left."""
        outcomes: list[JobOutcome] = []
        undecided: list[Undecided] = []
        for job, event in pairs:
            if event is None or event.status is EventStatus.CANCELLED:
                outcomes.append(JobOutcome(job=job))
                continue
            entry = await self.ports.catalog.find(event.app_id, event.type)
            if entry is None:
                outcomes.append(fail_without_type(job, event.type))
                continue
            undecided.append((job, event, entry))
        decided, later = await self.decide(undecided)
        refused = await self.writer.write([*outcomes, *decided])
        return [*refused, *later]

    async def decide(self, some: Sequence[Undecided]) -> tuple[list[JobOutcome], list[Job]]:
        """Return the outcomes, and the jobs that depend on an outcome that is not written yet.

        All jobs are of one app.
        """
        now = self.ports.clock.now()
        requests = [make_request(event, job.user_id, entry, now) for job, event, entry in some]
        cases = await self.cases.read(requests)
        return await self._decide_in_order(zip(some, cases, strict=True))

    async def _decide_in_order(
        self, cases: Iterable[tuple[Undecided, PreparedCase]]
    ) -> tuple[list[JobOutcome], list[Job]]:
        """Decide one after the other, each as if those before it were written already."""
        batch, slices = BatchView(), WorkSlices()
        outcomes: list[JobOutcome] = []
        later: list[Job] = []
        clock = asyncio.get_running_loop().time
        rendered_s = 0.0
        for (job, event, _), prepared in cases:
            if rendered_s > RENDERING_S:
                again = Reschedule(due_at=self.ports.clock.now() + LATER_MS)
                outcomes.append(JobOutcome(job=job, next=again))
                continue
            projected = batch.project(prepared)
            if projected is None:
                later.append(job)
                continue
            began = clock()
            outcome = await self.writer.run_safely(job, self._decide_one, job, event, projected)
            took_s = clock() - began
            rendered_s += took_s
            self.writer.metrics.decide_times.add(took_s)
            batch.add(prepared.request, outcome)
            outcomes.append(outcome)
            await slices.pause()
        return outcomes, later

    async def _decide_one(self, job: Job, event: Event, prepared: PreparedCase) -> JobOutcome:
        if prepared.case.user is None:
            # Deleted or erased since the event was accepted: nothing is stored about them.
            return JobOutcome(job=job, final_status=EventStatus.COMPLETED)
        notification_id = self.ports.clock.new_id()
        return await apply_decisions(job, event, prepared, decide(prepared.case), notification_id)


def make_request(event: Event, user_id: str, entry: CatalogEntry, now: int) -> DecisionRequest:
    """Return the request to decide an event for a user."""
    return DecisionRequest(
        app_id=event.app_id,
        user_id=user_id,
        entry=entry,
        priority=event.priority,
        content=event.content,
        channels=event.content.channels or entry.type.default_channels,
        expires_at=event.expires_at,
        dedupe_key=event.dedupe_key,
        now=now,
    )
