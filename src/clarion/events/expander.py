"""Expands a large audience into a job for each of its users, a chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clarion.events.model import (
    AudienceKind,
    Event,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
    Reschedule,
)
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.port import PipelinePorts
from clarion.pages import Page

CHUNK = 500
# While so many jobs of a lane are due, no more are added to it: the queue stays short, and other
# events do not wait behind a whole audience.
DUE_LIMIT = 2_000
PAUSE_MS = 100


@dataclass(frozen=True, slots=True)
class Expander:
    """Handles the jobs of audiences."""

    ports: PipelinePorts
    writer: OutcomeWriter

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Add the next users of each audience, for jobs of one app."""
        events = await self.ports.events.find_many(jobs[0].app_id, {job.event_id for job in jobs})
        for job in jobs:
            event = events.get(job.event_id)
            if event is None or event.status is EventStatus.CANCELLED:
                await self.writer.write([JobOutcome(job=job)])
            else:
                await self._expand(job, event)

    async def _expand(self, job: Job, event: Event) -> None:
        now = self.ports.clock.now()
        if await self.ports.queue.count_due(job.lane, now, DUE_LIMIT) >= DUE_LIMIT:
            later = Reschedule(due_at=now + PAUSE_MS)
            await self.writer.write([JobOutcome(job=job, next=later)])
            return
        page = await self._list_users(event, job.subject)
        found = [
            Job(f"{event.id}/{user}", job.lane, now, JobKind.DECIDE, event.app_id, event.id, user)
            for user in page.items
        ]
        # If that is refused, the event was cancelled or another worker has the job: the next claim
        # of it finds out.
        await self.ports.queue.expand(job, found, page.next, now)

    async def _list_users(self, event: Event, after: str) -> Page[str]:
        audience = event.audience
        match audience.kind:
            case AudienceKind.TOPIC:
                return await self.ports.users.followers(
                    event.app_id, audience.topic or "", after=after or None, limit=CHUNK
                )
            case AudienceKind.ALL:
                return await self.ports.users.list_ids(
                    event.app_id, after=after or None, limit=CHUNK
                )
            case _:
                start = int(after or 0)
                end = start + CHUNK
                is_last = end >= len(audience.ids)
                return Page(audience.ids[start:end], None if is_last else str(end))
