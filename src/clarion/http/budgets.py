"""What requests may hold at a time: bytes of bodies, and the time in which a body must arrive."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from clarion.errors import BodyTimeout, Overloaded, TooManyRequests

# Bytes of unfinished request bodies, and of responses that wait to be read. A quarter for each
# caller: four of them must meet to keep the others out.
TOTAL_BYTES = 64 * 1024 * 1024
_CALLERS = 4
# From the head of a request to the end of its body.
BODY_S = 30.0


class MemoryBudget:
    """Bytes held in memory, of all callers and of each."""

    def __init__(self, largest_bytes: int = 0) -> None:
        """Reserve one maximum-size body for each of four callers, or more."""
        self._total = max(TOTAL_BYTES, _CALLERS * largest_bytes)
        self._share = self._total // _CALLERS
        self._held: dict[str, int] = {}
        self.held_bytes = 0

    def take(self, who: str, size: int) -> None:
        """Hold some more bytes; `Overloaded` if they are too many."""
        held = self._held.get(who, 0) + size
        if held > self._share or self.held_bytes + size > self._total:
            raise Overloaded("Too many bodies are in transfer; retry when some have ended.")
        self._held[who] = held
        self.held_bytes += size

    def release(self, who: str, size: int) -> None:
        """Release some bytes."""
        self.held_bytes -= size
        left = self._held.get(who, 0) - size
        if left > 0:
            self._held[who] = left
        else:
            self._held.pop(who, None)


class Running:
    """Requests of each caller that run; each may hold memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def begin(self, who: str, limit: int) -> None:
        """Count a request until `end`; `TooManyRequests` if too many run already."""
        count = self._counts.get(who, 0)
        if count >= limit:
            detail = f"{limit:,} requests of this caller are running; wait for their responses."
            raise TooManyRequests(1, detail)
        self._counts[who] = count + 1

    def end(self, who: str) -> None:
        count = self._counts[who] - 1
        if count:
            self._counts[who] = count
        else:
            del self._counts[who]


class Receiving:
    """The requests whose body is being received: how long that may take, and how much they hold.

    One check each second ends those that take too long: a timer for each request would cost more
    than reading a short body.
    """

    def __init__(self, largest_bytes: int = 0, limit_s: float = BODY_S) -> None:
        self.budget = MemoryBudget(largest_bytes)
        self._limit_s = limit_s
        # In the order in which they began.
        self._since: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._since)

    def begin(self) -> asyncio.Task[Any]:
        """Let the running task be cancelled if it does not call `end` in time."""
        # To find the running loop costs a system call in Python 3.11: it is found once.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - every request is answered by a task
        self._since[task] = time.monotonic()
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        if self._since.pop(task, None) is None:
            self._expired.discard(task)

    def explain(self, task: asyncio.Task[Any]) -> None:
        """Raise `BodyTimeout` if a cancelled task was cancelled for being late."""
        if task in self._expired:
            task.uncancel()
            raise BodyTimeout

    def expire(self) -> None:
        """Cancel the tasks that have taken too long."""
        late = time.monotonic() - self._limit_s
        for task, since in list(self._since.items()):
            if since > late:
                return
            del self._since[task]
            self._expired.add(task)
            task.cancel()
