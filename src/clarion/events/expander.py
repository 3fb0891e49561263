"""Expands a large audience into a job for each of its users, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from clarion.catalog.model import Priority
from clarion.events.leases import Leases
from clarion.events.model import (
    AUDIENCES,
    DECISIONS,
    AudienceKind,
    Event,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
)
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.port import PipelinePorts
from clarion.pages import Page

CHUNK = 500
# Decisions due in a lane of an app above which no more are added: the queue stays short, and other
# events of the app do not wait behind a whole audience.
DUE_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Expander:
    """Handles the jobs of audiences; a turn expands one chunk in each lane."""

    ports: PipelinePorts
    writer: OutcomeWriter
    leases: Leases
    on_due: Callable[[str, str], None]
    is_full: Callable[[str], bool]  # whether the app has as many jobs as it may have
    _paused: set[str] = field(default_factory=set, init=False)

    async def find(self, app_id: str) -> Mapping[Priority, int]:
        """Return the lanes that have room for more decisions."""
        now, count_due = self.ports.clock.now(), self.ports.queue.count_due
        quotas: dict[Priority, int] = {}
        if not self.is_full(app_id):
            for lane in sorted(Priority, reverse=True):
                if await count_due(DECISIONS, lane, app_id, now, DUE_LIMIT) < DUE_LIMIT:
                    quotas[lane] = 1
        if len(quotas) < len(Priority):
            self._paused.add(app_id)
        return quotas

    def note_claimed(
        self, _app_id: str, _quotas: Mapping[Priority, int], jobs: Sequence[Job]
    ) -> bool:
        return bool(jobs)

    def resume(self, app_id: str) -> None:
        """Continue with the audiences of an app that waited for its decisions, now done."""
        if app_id in self._paused:
            self._paused.discard(app_id)
            self.on_due(AUDIENCES, app_id)

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
        page = await self._list_users(event, job.subject)
        found = [
            Job(f"{event.id}/{user}", job.lane, now, JobKind.DECIDE, event.app_id, event.id, user)
            for user in page.items
        ]
        # If that is refused, the event was cancelled or another worker has the job: the next claim
        # of it finds out.
        if await self.ports.queue.expand(self.leases.renew(job), found, page.next, now):
            self.on_due(DECISIONS, job.app_id)

    async def _list_users(self, event: Event, after: str) -> Page[str]:
        audience = event.audience
        match audience.kind:
            case AudienceKind.TOPIC:
                return await self.ports.users.followers(
                    event.app_id, audience.topic or "", after=after or None, limit=CHUNK
                )
            case AudienceKind.SEGMENT:
                return await self.ports.segments.list_users(
                    event.app_id, audience.filter or "", after=after or None, limit=CHUNK
                )
            case AudienceKind.ALL:
                return await self.ports.users.list_ids(
                    event.app_id, after=after or None, limit=CHUNK
                )
            case _:
                start = int(after or 0)
                end = start + CHUNK
                is_last = end >= len(audience.ids)
                # The place of a user who was erased is empty.
                ids = tuple(each for each in audience.ids[start:end] if each)
                return Page(ids, None if is_last else str(end))
