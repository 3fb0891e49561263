"""Work in slices: what takes long lets the other tasks of the event loop run in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

# Short for what a request does; a switch costs a thousandth of it.
SLICE_S = 0.004
# For background work. While it pauses, every request that has come goes a step further: with
# shorter slices requests would get nearly all of the time, and work would pile up.
WORK_SLICE_S = 0.015
# Sixteen events of the largest size take 30 ms to decode; as many small ones are quick, and then
# more are read at once.
_FIRST_CHUNK = 16
_QUICK_S = 0.003

T = TypeVar("T")


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


async def read_in_chunks(
    items: Sequence[T], read: Callable[[Sequence[T]], Awaitable[None]]
) -> None:
    """Read items with pauses, in chunks that double for as long as reading them is quick."""
    slices, start, size = Slices(WORK_SLICE_S), 0, _FIRST_CHUNK
    while start < len(items):
        before = time.thread_time()
        await read(items[start : start + size])
        start += size
        size = size * 2 if time.thread_time() - before < _QUICK_S else _FIRST_CHUNK
        await slices.pause()
