"""Adjusts the queue when the clock of the machine is set. Only with SQLite, which has one node.

A retry is stored with a time of day, which may be set by an hour. Jobs that wait for a number of
seconds still wait for that number; jobs that wait for a time of day, such as the end of quiet
hours, use the new time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from clarion.clock import SteadyClock
from clarion.errors import ClarionError
from clarion.events.port import Queue
from clarion.telemetry.logs import get_logger

EVERY_S = 0.5
# Smaller corrections of a clock are normal: then jobs may wait that much longer.
STEP_MS = 1_000
MOVED_AT_ONCE = 1_000

# Moves some jobs after an id; returns the last one that it looked at, None at the end.
_Move = Callable[[str], Awaitable[str | None]]


class ClockSteps:
    """Takes over steps of the clock by which the queue works."""

    def __init__(self, clock: SteadyClock, queue: Queue) -> None:
        self._clock = clock
        self._queue = queue
        self._left: list[_Move | int] = []
        self._last = ""

    async def run(self) -> None:
        """Look for a step twice a second, until cancelled."""
        while True:
            # What the store refuses is tried again from there.
            with contextlib.suppress(ClarionError):
                await self.follow()
            await asyncio.sleep(EVERY_S)

    async def follow(self) -> None:
        """Take over a step of the clock, if there was one, and move the jobs by it."""
        if not self._left:
            step_ms = self._clock.step_ms
            if abs(step_ms) < STEP_MS:
                self._clock.follow(step_ms)
                return
            self._left = self._plan(step_ms)
            get_logger().warning("clock_set", by_s=step_ms / 1000)
        while self._left:
            await self._do(self._left[0])
            self._left.pop(0)

    def _plan(self, step_ms: int) -> list[_Move | int]:
        """Return the necessary actions: moves of jobs, and the step itself.

        Due jobs stay due, and waiting jobs never become due in between: they are moved ahead before
        the clock, or back after it.
        """
        queue, now, most = self._queue, self._clock.now(), MOVED_AT_ONCE
        move_due = partial(queue.move_due, now=now, by_ms=step_ms, limit=most)
        move_waiting = partial(queue.move_waiting, now=now, by_ms=step_ms, limit=most)
        return [move_waiting, step_ms] if step_ms > 0 else [move_due, step_ms, move_waiting]

    async def _do(self, what: _Move | int) -> None:
        if isinstance(what, int):
            self._clock.follow(what)
            return
        while (last := await what(self._last)) is not None:
            self._last = last
        self._last = ""
