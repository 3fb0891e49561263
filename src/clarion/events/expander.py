"""A large audience → work for each of its people, a chunk at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.events.model import AudienceKind, Entry, EventStatus, Job, JobKind, Later
from clarion.pages import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.clock import Clock
    from clarion.events.model import Event
    from clarion.events.outcome_writer import Recording
    from clarion.events.port import Events, Queue
    from clarion.people.port import Users

CHUNK = 500
# While so much is due in a lane, no more people are added to it: the queue stays short, and what
# comes in between does not wait behind a whole audience.
DUE_LIMIT = 2_000
PAUSE_MS = 100


class Expanding:
    """Finds the people of audiences."""

    def __init__(
        self, *, events: Events, users: Users, queue: Queue, recording: Recording, clock: Clock
    ) -> None:
        self._events = events
        self._users = users
        self._queue = queue
        self._recording = recording
        self._clock = clock

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Find the next people of each audience."""
        events = await self._events.find_many(jobs[0].app_id, {job.event_id for job in jobs})
        for job in jobs:
            event = events.get(job.event_id)
            if event is None or event.status is EventStatus.CANCELLED:
                await self._recording.write([Entry(job=job)])
            else:
                await self._expand(job, event)

    async def _expand(self, job: Job, event: Event) -> None:
        now = self._clock.now()
        if await self._queue.count_due(job.lane, now, DUE_LIMIT) >= DUE_LIMIT:
            await self._recording.write([Entry(job=job, next=Later(due_at=now + PAUSE_MS))])
            return
        page = await self._find(event, job.subject)
        found = [
            Job(f"{event.id}/{user}", job.lane, now, JobKind.DECIDE, event.app_id, event.id, user)
            for user in page.items
        ]
        # Refused: the event was cancelled, or another worker has the job. Both are seen next time.
        await self._queue.expand(job, found, page.next, now)

    async def _find(self, event: Event, after: str) -> Page[str]:
        audience = event.audience
        match audience.kind:
            case AudienceKind.TOPIC:
                return await self._users.followers(
                    event.app_id, audience.topic or "", after=after or None, limit=CHUNK
                )
            case AudienceKind.ALL:
                return await self._users.list_ids(event.app_id, after=after or None, limit=CHUNK)
            case _:
                start = int(after or 0)
                end = start + CHUNK
                is_last = end >= len(audience.ids)
                return Page(audience.ids[start:end], None if is_last else str(end))
