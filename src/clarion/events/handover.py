"""Passes new events to a worker of the same process, claimed in the commit that accepts them.

So they are neither claimed nor read again. If the process dies, their leases expire and they are
claimed like any other job.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from clarion.catalog.model import Priority
from clarion.events.leases import Leases
from clarion.events.model import Event, Job
from clarion.events.turns import Turns

# Events that arrive while this many wait are claimed from the store. An app may have as many as are
# left for others: alone it has half of them.
LIMIT = 8_000
# While this many events of an app wait, its requests wait too, but not for long: work that keeps up
# with the requests reads nothing again from the store.
BUSY = 512
BUSY_S = 0.5
_LANES = sorted(Priority, reverse=True)
Accepted = tuple[Job, Event]


class Handover:
    """Holds accepted events that are not decided yet, by app and lane."""

    def __init__(self, turns: Turns, leases: Leases) -> None:
        self._turns = turns
        self._leases = leases
        self._apps: dict[str, dict[Priority, deque[Accepted]]] = {}
        self._counts: dict[str, int] = {}
        self._total = 0
        # Done when the app has fewer events than make it busy.
        self._busy: dict[str, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return self._total

    def has_room(self, app_id: str) -> bool:
        """Whether one more event of an app can be handed over."""
        return self._counts.get(app_id, 0) < LIMIT - self._total

    def is_busy(self, app_id: str) -> bool:
        """Whether many events of an app wait."""
        return self._counts.get(app_id, 0) >= BUSY

    async def wait(self, app_id: str) -> None:
        """Wait until an app is no longer busy, at most half a second."""
        future = self._busy.get(app_id)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._busy[app_id] = loop.create_future()
            # One timer for all that wait is cheaper than one for each.
            loop.call_later(BUSY_S, self._end_wait, app_id, future)
        await asyncio.shield(future)

    def put(self, pairs: Iterable[Accepted]) -> None:
        """Hand over events with their claimed jobs, after they are stored."""
        for job, event in pairs:
            app_id = job.app_id
            lanes = self._apps.get(app_id)
            if lanes is None:
                lanes = self._apps[app_id] = {lane: deque() for lane in _LANES}
                self._turns.add(app_id)
            lanes[job.lane].append((job, event))
            self._counts[app_id] = self._counts.get(app_id, 0) + 1
            self._total += 1
            self._leases.hold(job)

    def take(self, app_id: str, count: int) -> list[Accepted]:
        """Take the most urgent events of an app, up to a limit; if more wait, it gets a turn."""
        taken: list[Accepted] = []
        lanes = self._apps.get(app_id, {})
        for lane in lanes.values():
            while lane and len(taken) < count:
                taken.append(lane.popleft())
        self._total -= len(taken)
        if not lanes or self._counts[app_id] == len(taken):
            self._apps.pop(app_id, None)
            self._counts.pop(app_id, None)
        else:
            self._counts[app_id] -= len(taken)
            self._turns.add(app_id)
        if app_id in self._busy and not self.is_busy(app_id):
            self._end_wait(app_id, self._busy[app_id])
        return taken

    def _end_wait(self, app_id: str, future: asyncio.Future[None]) -> None:
        if self._busy.get(app_id) is future:
            del self._busy[app_id]
            future.set_result(None)
