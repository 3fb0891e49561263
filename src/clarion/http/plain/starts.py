"""When the requests of all connections start: each connection has one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# Of those that arrive together, 50 start in each round of the loop: a step of a thousand takes
# 100 ms.
_STARTED_TOGETHER = 50


class Starts:
    """Starts requests: some in each turn of the loop.

    How many may run at a time is limited by the number of connections. A limit of its own would let
    those who send their bodies slowly keep out all others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._left = _STARTED_TOGETHER  # in this turn of the loop

    def add(self, start: Callable[[], None]) -> None:
        """Start a request, now or in one of the next turns."""
        if self._left and not self._waiting:
            self._left -= 1
            start()
        else:
            self._waiting.append(start)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        self._left = _STARTED_TOGETHER
        while self._left and self._waiting:
            self._left -= 1
            self._waiting.popleft()()
        if self._waiting:
            self._schedule()
