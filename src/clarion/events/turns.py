"""Round robin over apps: each app that has work gets a turn of a worker before any gets another."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque


class Turns:
    """The apps that have work for the workers of one pool, in the order of their turns."""

    def __init__(self, *, per_app: int) -> None:
        self._per_app = per_app
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._running: Counter[str] = Counter()
        # They have work, and as many turns at the same time as an app may have.
        self._waiting: set[str] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        # Apps with jobs to claim, and how many turns each has had since without a claim.
        self.due: dict[str, int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no app has work, and no turn is in progress."""
        return not (self._ready or self._running or self._waiting)

    @property
    def is_ready(self) -> bool:
        """Whether an app can have a turn now."""
        return bool(self._ready)

    def is_free(self, app_id: str) -> bool:
        """Whether a worker is free, and no job of an app is waiting or in progress."""
        return bool(self._idle) and not (
            app_id in self._ready or app_id in self._running or app_id in self.due
        )

    def add_due(self, app_id: str) -> None:
        """Give an app a turn: it has jobs to claim."""
        self.due.setdefault(app_id, 0)
        self.add(app_id)

    def add(self, app_id: str) -> None:
        """Give an app a turn after all that wait for theirs, and wake a worker for it."""
        if self._running[app_id] >= self._per_app:
            self._waiting.add(app_id)
        elif app_id not in self._ready:
            self._ready[app_id] = None
            self._wake(1)

    def take(self) -> str | None:
        """Return the app whose turn it is, until `end`; None if no app has work."""
        if not self._ready:
            return None
        app_id, _ = self._ready.popitem(last=False)
        self._running[app_id] += 1
        return app_id

    def end(self, app_id: str) -> None:
        """End a turn."""
        self._running[app_id] -= 1
        if not self._running[app_id]:
            del self._running[app_id]
        if app_id in self._waiting:
            self._waiting.discard(app_id)
            self.add(app_id)

    async def wait(self) -> None:
        """Wait until an app has work, or until woken."""
        if self._ready:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._idle:
                self._idle.remove(waiter)

    def wake_all(self) -> None:
        """Let every waiting worker look around."""
        self._wake(len(self._idle))

    def _wake(self, count: int) -> None:
        while self._idle and count:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
