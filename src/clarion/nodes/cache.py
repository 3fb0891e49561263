"""Cached values from the store, and until when a node may use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from clarion.nodes.invalidation import Invalidation
from clarion.nodes.recent_changes import RecentChanges

K = TypeVar("K")
V = TypeVar("V")


class NodeCache(Generic[K, V]):
    """Values by key, with the time at which each was read. The oldest is evicted first.

    A value is used for `lifetime_ms`; if `invalidation` is set, for `disconnected_ms` while its bus
    is disconnected. `limit` is the number of values, or the sum of their sizes by `size_of`.

    A value that was read before a change is never cached after it. A caller that does not use
    `find` takes `changes.count` before the read, and passes it to `put`.
    """

    __slots__ = (
        "_disconnected_ms",
        "_entries",
        "_lifetime_ms",
        "_limit",
        "_size",
        "_size_of",
        "changes",
        "invalidation",
    )

    def __init__(
        self,
        lifetime_ms: int,
        limit: int,
        *,
        size_of: Callable[[V], int] = lambda _value: 1,
        disconnected_ms: int | None = None,
    ) -> None:
        self.changes = RecentChanges()
        # By which the owner of the cache learns of changes on other nodes.
        self.invalidation: Invalidation | None = None
        self._lifetime_ms = lifetime_ms
        self._disconnected_ms = lifetime_ms if disconnected_ms is None else disconnected_ms
        self._limit = limit
        self._size_of = size_of
        self._size = 0
        self._entries: dict[K, tuple[int, V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: int) -> tuple[int, V] | None:
        """Return when the value was read, and the value; None if it must be read again."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        # A value from the future was read before the clock was set back.
        age_ms = now - entry[0]
        if 0 <= age_ms < self._disconnected_ms:
            return entry
        is_connected = self.invalidation is None or self.invalidation.bus.is_connected
        return entry if is_connected and 0 <= age_ms < self._lifetime_ms else None

    def peek(self, key: K) -> V | None:
        """Return the value, regardless of its age, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    async def find(self, key: K, now: int, read: Callable[[K], Awaitable[V]]) -> V:
        """Return the value, cached or read; it is cached unless it was changed meanwhile."""
        entry = self.get(key, now)
        if entry is not None:
            return entry[1]
        since = self.changes.count
        value = await read(key)
        self.put(key, value, now, since)
        return value

    def put(self, key: K, value: V, read_at: int, since: int) -> bool:
        """Cache a value that was read at a time; False if it may have changed since.

        `since` is the count of changes before the read began.
        """
        if self.changes.has(key, since):
            return False
        self._remove(key)
        size = self._size_of(value)
        while self._entries and self._size + size > self._limit:
            self._remove(next(iter(self._entries)))
        self._size += size
        self._entries[key] = (read_at, value)
        return True

    def forget(self, key: K) -> None:
        """Drop a value; one that is just being read is not cached."""
        self.changes.note(key)
        self._remove(key)

    def forget_all(self) -> None:
        """Have every value read again, as in `forget`."""
        self.changes.note_all()
        self._entries.clear()
        self._size = 0

    def forget_where(self, is_changed: Callable[[K, V], bool]) -> None:
        """Have the values for which a condition holds read again, as in `forget`."""
        self.changes.note_all()  # the condition may hold for any value that is being read
        for key in [key for key, (_, value) in self._entries.items() if is_changed(key, value)]:
            self._remove(key)

    def _remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= self._size_of(entry[1])
