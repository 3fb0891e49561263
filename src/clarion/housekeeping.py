"""One table: what is expired or pruned, how often, and by which step.

A step does at most `CHUNK` at a time and returns how much that was, so that requests never wait
long behind it. The supervisor runs each task as a loop of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.errors import ClarionError
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clarion.clock import Clock

    # Takes the time, does at most a chunk, and returns how much it did.
    Step = Callable[[int], Awaitable[int]]

CHUNK = 500
DAY_MS = 24 * 3600 * 1000
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Task:
    """Something that is done every so often."""

    name: str
    every_s: float
    step: Step
    clock: Clock

    async def run(self) -> None:
        """Do it again and again, until cancelled."""
        while True:
            await asyncio.sleep(self.every_s)
            try:
                await self.run_once()
            except ClarionError as error:  # the store is away; the next time will do
                get_logger().warning("housekeeping_failed", task=self.name, code=error.code)

    async def run_once(self) -> None:
        """Do all that is due now, a chunk at a time."""
        now = self.clock.now()
        while await self.step(now) >= CHUNK:
            await asyncio.sleep(_PAUSE_S)
