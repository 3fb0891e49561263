"""Long work on the event loop, done in turns so that nothing else waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

# How long one turn may take. A request that arrives meanwhile waits as long.
TURN_S = 0.005
# Short for what a request does; a switch costs a thousandth of it.
SLICE_S = 0.004
# For background work. While it pauses, every request that has come goes a step further: with
# shorter slices requests would get nearly all of the time, and work would pile up.
WORK_SLICE_S = 0.015
# Sixteen events of the largest size take 30 ms to decode; as many small ones are quick, and then
# more are read at once.
_FIRST_CHUNK = 16
_QUICK_S = 0.003


class Pace:
    """Iterates in turns: when one has taken its time, everything else runs before the next.

    All iterations with one pace share its turns, of which there is one each time the loop comes
    round: many at once stall it no longer than one does.
    """

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._ends_at: float | None = None
        self._queue = asyncio.Lock()

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items; what is done with each must be short."""
        for item in items:
            if self._is_over():
                async with self._queue:
                    while self._is_over():  # noqa: ASYNC110 - the loop itself is waited for
                        await asyncio.sleep(0)
            yield item

    def _is_over(self) -> bool:
        """Whether the turn has taken its time; begins one if there is none."""
        now = time.perf_counter()
        if self._ends_at is not None:
            return now >= self._ends_at
        self._ends_at = now + self._turn_s
        asyncio.get_running_loop().call_soon(self._end)
        return False

    def _end(self) -> None:
        self._ends_at = None


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
