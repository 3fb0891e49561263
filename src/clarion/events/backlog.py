"""How old the queue is: when it is too old, more is refused rather than added."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from clarion.catalog.model import Priority
from clarion.errors import ClarionError

if TYPE_CHECKING:
    from clarion.clock import Clock
    from clarion.events.port import Queue

LOOK_EVERY_S = 1.0


class Backlog:
    """Looks at the oldest job of each lane once a second."""

    def __init__(self, queue: Queue, clock: Clock, *, limit_s: int) -> None:
        self._queue = queue
        self._clock = clock
        self._limit_ms = limit_s * 1000
        self.ages_ms: dict[Priority, int] = dict.fromkeys(Priority, 0)

    @property
    def is_too_old(self) -> bool:
        """Whether what waits has waited longer than the limit."""
        return max(self.ages_ms.values()) > self._limit_ms

    def read_ages(self) -> dict[str, float]:
        """Return the age of each lane in seconds, by its name."""
        return {lane.name.lower(): age / 1000 for lane, age in self.ages_ms.items()}

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            # The store's troubles are told elsewhere; an old age is better than none.
            with contextlib.suppress(ClarionError):
                await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Look once."""
        now = self._clock.now()
        for lane in Priority:
            due = await self._queue.oldest(lane)
            self.ages_ms[lane] = max(now - due, 0) if due is not None else 0
