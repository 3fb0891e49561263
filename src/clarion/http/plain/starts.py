"""When the requests of all connections start: each connection has one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# Requests that may run at a time, not counting live streams. Each takes about 7 KiB.
_RUNNING = 3_000
# Of those that arrive together, 50 start in each round of the loop: a step of a thousand takes
# 100 ms.
_STARTED_TOGETHER = 50


class Starts:
    """Starts requests: some in each turn of the loop, and a limited number at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count_streams: Callable[[], int]) -> None:
        self._loop = loop
        self._count_streams = count_streams  # live streams do not count
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._left = _STARTED_TOGETHER  # in this turn of the loop
        self._running = 0

    def add(self, start: Callable[[], None]) -> None:
        """Start a request, now or later; `end` must follow."""
        if self._left and not self._waiting and self._has_room():
            self._start(start)
        else:
            self._waiting.append(start)
        self._schedule()

    def end(self) -> None:
        """Note that a request has ended."""
        self._running -= 1
        if self._waiting:
            self._schedule()

    def _start(self, start: Callable[[], None]) -> None:
        self._left -= 1
        self._running += 1
        start()

    def _has_room(self) -> bool:
        return self._running < _RUNNING or self._running < _RUNNING + self._count_streams()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        self._left = _STARTED_TOGETHER
        while self._left and self._waiting and self._has_room():
            self._start(self._waiting.popleft())
        if self._waiting and self._has_room():
            self._schedule()
