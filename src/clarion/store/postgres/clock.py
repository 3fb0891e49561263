"""The time of the database, which all nodes share: the monotonic clock and a measured offset.

One node compares times that another has stored with the current time, so they must not use their
own clocks. The clocks of the machines may differ and may be set; nothing here depends on them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from clarion.clock import Clock, SortedIds, SystemClock
from clarion.errors import ClarionError
from clarion.telemetry.logs import get_logger

EVERY_S = 60.0
# The best of this number of readings counts: a reading that waited for the network is less exact.
SAMPLES = 3
# A clock of this machine that is further off is reported.
SKEW_LIMIT_MS = 60_000
# A database whose clock is set back further than this was wrong for long: its new time counts at
# once. By less, the time stands still until the database is level with it.
STEP_LIMIT_MS = 600_000

ReadTime = Callable[[], Awaitable[int | None]]


class _Sample(NamedTuple):
    """How far the database is ahead of the monotonic clock, give or take the uncertainty."""

    uncertainty_ms: int
    offset_ms: int


class DatabaseClock:
    """The `Clock` port of a node on PostgreSQL. Its time does not go back."""

    def __init__(self, read_time: ReadTime, system: Clock | None = None) -> None:
        self._read_time = read_time
        self._system = system or SystemClock()
        self._ids = SortedIds()
        self._latest = self._offset_ms = 0
        # Half of the time that the answer took: the database read its clock somewhen in between.
        self.uncertainty_ms: int | None = None
        self._is_skewed = False

    def now(self) -> int:
        now = self._system.monotonic() + self._offset_ms
        self._latest = max(self._latest, now)
        return self._latest

    def monotonic(self) -> int:
        return self._system.monotonic()

    def new_id(self) -> str:
        return self._ids.make(self.now())

    @property
    def skew_ms(self) -> int:
        """How far the clock of this machine is ahead of the database."""
        return self._system.now() - self.now()

    async def run(self) -> None:
        """Measure every minute, until cancelled."""
        while True:
            # If the database does not answer, the last offset is good for long.
            with contextlib.suppress(ClarionError):
                await self.measure()
            self._report()
            await asyncio.sleep(EVERY_S)

    async def measure(self) -> None:
        """Read the time of the database, and adopt it."""
        best = min([await self._take_sample() for _ in range(SAMPLES)])
        behind_ms = self._offset_ms - best.offset_ms
        is_first = self.uncertainty_ms is None
        if not is_first and abs(behind_ms) <= best.uncertainty_ms:
            return
        if behind_ms > STEP_LIMIT_MS:
            self._latest = 0
        self._offset_ms, self.uncertainty_ms = best.offset_ms, best.uncertainty_ms

    async def _take_sample(self) -> _Sample:
        asked = self._system.monotonic()
        time = await self._read_time()
        if time is None:
            raise TypeError("the database has no clock")
        answered = self._system.monotonic()
        # Both clocks are read in whole milliseconds.
        return _Sample((answered - asked) // 2 + 1, time - (asked + answered) // 2)

    def _report(self) -> None:
        """Log when the clock of this machine becomes wrong, and when it is right again."""
        is_skewed = abs(self.skew_ms) > SKEW_LIMIT_MS
        if is_skewed == self._is_skewed:
            return
        self._is_skewed = is_skewed
        if is_skewed:
            get_logger().warning(
                "clock_skewed",
                ahead_s=self.skew_ms / 1000,
                advice="Set the clock of this machine, or start its time service.",
            )
        else:
            get_logger().info("clock_level", ahead_s=self.skew_ms / 1000)
