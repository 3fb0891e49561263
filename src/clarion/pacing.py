"""Long work on the event loop, done in turns so that nothing else waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# How long one turn may take. A request that arrives meanwhile waits as long.
TURN_S = 0.005
# Short for what a request does; a switch costs a thousandth of it.
SLICE_S = 0.004
# All background work together may take this time in each turn of the loop, or as long as
# everything else took, if that is more: requests alone would otherwise get nearly all of the time,
# and work would pile up. Never more than the second: everybody waits for it.
_WORK_S = 0.002
WORK_SLICE_S = 0.015
# Sixteen events of the largest size take 30 ms to decode; as many small ones are quick, and then
# more are read at once.
_FIRST_CHUNK = 16
_QUICK_S = 0.001


def cut(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `count`."""
    return (items[start : start + count] for start in range(0, len(items), count))


class Pace:
    """Iterates in turns: when one has taken its time, everything else runs before the next.

    All iterations with one pace share its turns; there is one each time the loop comes
    round: many at once stall it no longer than one does.
    """

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._ends_at: float | None = None
        self._queue = asyncio.Lock()

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items; the work on each must be short."""
        for item in items:
            if self._is_over():
                async with self._queue:
                    while self._is_over():  # noqa: ASYNC110 - the loop itself is waited for
                        await asyncio.sleep(0)
            yield item

    def _is_over(self) -> bool:
        """Whether the time of this turn is used up; starts a turn if none is running."""
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


class WorkSlices:
    """Slices of background work: the tasks that do it share its part of the loop's time.

    Counted in processor time, so that work on a busy machine is not cut short. To ask for it is a
    system call, as long as a decision; so it is asked for when as much time has passed as is left.
    Short work never asks: its first slice is one of the clock.
    """

    __slots__ = ("_asks_at", "_began", "_ends_at", "_first_at")
    # The time of all background work so far, and how many of its tasks pause.
    _spent_s = 0.0
    _paused = 0

    def __init__(self) -> None:
        self._first_at: float | None = time.perf_counter()
        self._asks_at = self._first_at + _WORK_S / (WorkSlices._paused + 1)
        self._began = self._ends_at = 0.0

    def _start(self, now: float, slice_s: float) -> None:
        self._first_at, self._began = None, now
        share_s = slice_s / (WorkSlices._paused + 1)
        self._ends_at = now + share_s
        self._asks_at = time.perf_counter() + share_s

    async def pause(self) -> None:
        """Let other tasks run, if this one has worked for its share of a slice."""
        if (now_s := time.perf_counter()) < self._asks_at:
            return
        paused_at = time.thread_time()
        if paused_at < self._ends_at:
            self._asks_at = now_s + self._ends_at - paused_at
            return
        if self._first_at is not None:
            self._began = paused_at - (now_s - self._first_at)
        spent_s = WorkSlices._spent_s = WorkSlices._spent_s + paused_at - self._began
        WorkSlices._paused += 1
        try:
            await asyncio.sleep(0)
        finally:
            WorkSlices._paused -= 1
        now = time.thread_time()
        others_s = now - paused_at - (WorkSlices._spent_s - spent_s)
        self._start(now, min(max(others_s, _WORK_S), WORK_SLICE_S))


async def read_in_chunks(
    items: Sequence[T], read: Callable[[Sequence[T]], Awaitable[None]]
) -> None:
    """Read items with pauses, in chunks that double for as long as reading them is quick."""
    slices, start, size = WorkSlices(), 0, _FIRST_CHUNK
    while start < len(items):
        before = time.thread_time()
        await read(items[start : start + size])
        start += size
        size = size * 2 if time.thread_time() - before < _QUICK_S else _FIRST_CHUNK
        await slices.pause()
