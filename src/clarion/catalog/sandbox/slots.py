"""A few slots that apps get in turn, so that one app with many jobs does not delay the others."""

from __future__ import annotations

import asyncio
from collections import deque

from clarion.errors import TooManyRequests

# Of one app: they are requests and deliveries that wait.
WAITING_LIMIT = 1_000


class AppSlots:
    """Slots for work. An app has at most one, and apps that wait get theirs in turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._working: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    async def take(self, app_id: str) -> None:
        """Wait for a slot; `TooManyRequests` if too much of the app waits already."""
        queue = self._waiting.setdefault(app_id, deque())
        if len(queue) >= WAITING_LIMIT:
            raise TooManyRequests(
                1, f"{WAITING_LIMIT:,} templates or schemas of this app are waiting to be run."
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(future)
        self._hand_out()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(app_id)
            raise

    def leave(self, app_id: str) -> None:
        """Release the slot for the next app."""
        self._working.discard(app_id)
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (app_id := self._find_next()) is not None:
            queue = self._waiting.pop(app_id)
            future = queue.popleft()
            if queue:
                self._waiting[app_id] = queue  # at the end: the others come first
            if not future.cancelled():
                self._free -= 1
                self._working.add(app_id)
                future.set_result(None)

    def _find_next(self) -> str | None:
        return next((each for each in self._waiting if each not in self._working), None)
