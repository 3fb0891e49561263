"""Measures how old the queue is: when it is too old, new events are refused."""

from __future__ import annotations

import asyncio
import contextlib

from clarion.catalog.model import Priority
from clarion.clock import Clock
from clarion.errors import ClarionError
from clarion.events.port import Queue

INTERVAL_S = 1.0


class Backlog:
    """Knows the age of the oldest job of each lane."""

    def __init__(self, queue: Queue, clock: Clock, *, limit_s: int) -> None:
        self._queue = queue
        self._clock = clock
        self._limit_ms = limit_s * 1000
        self._ages_ms: dict[Priority, int] = dict.fromkeys(Priority, 0)

    @property
    def is_too_old(self) -> bool:
        """Whether the oldest job has been due for longer than the limit."""
        return max(self._ages_ms.values()) > self._limit_ms

    def ages_s(self) -> dict[str, float]:
        """Return the age of each lane in seconds, by its name."""
        return {lane.name.lower(): age / 1000 for lane, age in self._ages_ms.items()}

    async def watch(self) -> None:
        """Measure once a second until cancelled."""
        while True:
            # An error of the store is reported by the workers; the last ages stay.
            with contextlib.suppress(ClarionError):
                await self._measure()
            await asyncio.sleep(INTERVAL_S)

    async def _measure(self) -> None:
        now = self._clock.now()
        for lane in Priority:
            due_at = await self._queue.oldest_due_at(lane)
            self._ages_ms[lane] = max(now - due_at, 0) if due_at is not None else 0
