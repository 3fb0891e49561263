"""Changes of one row, one after the other.

A change is read, edited and written if the row has not changed in between. Of many concurrent
changes on this node, all but one would conflict and retry; so they wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clarion.errors import Overloaded

# Each waits for a commit or two: more would wait too long.
WAITING_LIMIT = 100


class RowTurns:
    """The rows that are being changed, by key, and who waits for each."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def take(self, app_id: str, row_id: str) -> AsyncIterator[None]:
        """Wait until no other change of a row is in progress; `Overloaded` if too many wait."""
        key = (app_id, row_id)
        count = self._counts.get(key, 0)
        if count > WAITING_LIMIT:
            raise Overloaded("Too many changes of this object at a time; nothing was stored.")
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._counts[key] = count + 1
        try:
            async with lock:
                yield
        finally:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key], self._locks[key]
