"""Recently changed keys: values that were read before the change must not be cached."""

from __future__ import annotations

from collections.abc import Hashable

LIMIT = 10_000


class RecentChanges:
    """Numbers the changes of keys, and keeps the last ones. Reads take milliseconds.

    If a read began before the oldest of these, any key may have been changed since.
    """

    __slots__ = ("_all_at", "_numbers", "count")

    def __init__(self) -> None:
        # How many changes there were so far.
        self.count = 0
        self._numbers: dict[Hashable, int] = {}
        # The number of the last change that may have been one of any key.
        self._all_at = 0

    def note(self, key: Hashable) -> None:
        """Take note that a key was changed."""
        self.count += 1
        self._numbers.pop(key, None)
        if len(self._numbers) >= LIMIT:
            self._all_at = max(self._all_at, self._numbers.pop(next(iter(self._numbers))))
        self._numbers[key] = self.count

    def note_all(self) -> None:
        """Take note that any key may have been changed."""
        self.count += 1
        self._all_at = self.count

    def has(self, key: Hashable, since: int) -> bool:
        """Return whether a key may have been changed since the count of changes was `since`."""
        return max(self._numbers.get(key, 0), self._all_at) > since
