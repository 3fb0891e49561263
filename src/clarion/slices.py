"""Work in slices: what takes long lets the other tasks of the event loop run in between."""

from __future__ import annotations

import asyncio
import time

# Short for what a request does; a switch costs a thousandth of it.
SLICE_S = 0.004
# For background work. While it pauses, every request that has come goes a step further: with
# shorter slices requests would get nearly all of the time, and work would pile up.
WORK_SLICE_S = 0.015


class Slices:
    """Counts the time since the last pause. For one task, from its first step to its last."""

    __slots__ = ("_ends_at", "_slice_s")

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._ends_at = time.perf_counter() + slice_s

    async def pause(self) -> None:
        """Let other tasks run, if this one has worked for a slice."""
        if time.perf_counter() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.perf_counter() + self._slice_s
