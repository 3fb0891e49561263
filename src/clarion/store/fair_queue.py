"""The units that wait for a commit: bounded in number and bytes, and shared fairly by owners.

An owner is the app whose request a unit is part of. The server's own units (acknowledgements,
housekeeping) have none; together they count as one owner more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heappop, heappush, heapreplace

from clarion.errors import Overloaded
from clarion.store.statement import Row, Unit

# What a row counts beside its texts. It takes about so much memory while it waits, and as long to
# write as a kibibyte of text: 4 to 12 microseconds.
ROW_BYTES = 1024
# What one owner may have of a batch while others are active: they wait for the batch that runs and
# for the one they are in. It takes about a millisecond to write.
SHARED_BYTES = 32 * 1024
# If the others have at most this much waiting, their batch is a short one, every other time.
LIGHT_BYTES = 16 * 1024
# An owner counts as active for about this number of batches after its last unit.
ACTIVE_BATCHES = 1_000
_Future = asyncio.Future[tuple[tuple[Row, ...], ...] | None]
# A unit that waits, its size, and the future of its caller.
Waiting = tuple[Unit, int, _Future]


class _OfOwner:
    """The waiting units of one owner, oldest first."""

    __slots__ = ("bytes", "units")

    def __init__(self) -> None:
        self.units: deque[Waiting] = deque()
        self.bytes = 0


class FairQueue:
    """Units by owner, oldest first. The owner that has had least of the writer is next."""

    def __init__(self, *, units_limit: int, bytes_limit: int) -> None:
        self.units = self.bytes = 0
        self._units_limit = units_limit
        self._bytes_limit = bytes_limit
        # Those that came since the last batch. They are sorted by owner only if that matters:
        # usually the next batch takes them all.
        self._unsorted: list[Waiting] = []
        self._owners: dict[str | None, _OfOwner] = {}
        # A heap of those who have units: the bytes taken so far (for an owner that comes, as many
        # as for the one whose turn it is), the order in which they came, and the owner.
        self._turns: list[tuple[int, int, str | None]] = []
        self._turn = self._arrivals = 0
        # The owners of the last batches, and of those before.
        self._active: set[str] = set()
        self._active_before: set[str] = set()
        self._batches = 0
        self._is_light = False  # the last batch

    def add(self, unit: Unit, size: int, future: _Future) -> None:
        """Add a unit; `Overloaded` if its owner has no space for another.

        The waiting units and bytes of an app may be at most as many as are still free: alone it can
        use half of the space, two busy apps a third each, and some is always left for others.
        """
        # While half of the space is free, nobody can have more than that.
        if self.units * 2 >= self._units_limit or (self.bytes + size) * 2 >= self._bytes_limit:
            self._check_space(unit.owner, size)
        self._unsorted.append((unit, size, future))
        self.units += 1
        self.bytes += size

    def take(self, *, units: int, size: int) -> list[Waiting]:
        """Remove and return units up to a size, but at least one if any waits."""
        is_shared = self._is_shared()
        least = min(LIGHT_BYTES, size) if is_shared else size
        if self.units <= units and self.bytes <= least:  # the usual case
            return self._take_all()
        self._sort()
        return self._take_fairly(units, size, self._find_share() if is_shared else size)

    def _find_share(self) -> int:
        """Return how much of the next batch each app may have."""
        heaviest = max(own.bytes for own in self._owners.values())
        self._is_light = not self._is_light and 0 < self.bytes - heaviest <= LIGHT_BYTES
        return LIGHT_BYTES if self._is_light else SHARED_BYTES

    def _take_fairly(self, units: int, size: int, share: int) -> list[Waiting]:
        taken: list[Waiting] = []
        had: dict[str | None, int] = {}
        rested: list[tuple[int, int, str | None]] = []
        while len(taken) < units and self._turns:
            owner = self._turns[0][2]
            next_size = self._owners[owner].units[0][1]
            if taken and next_size > size:
                break
            own = had[owner] = had.get(owner, 0) + next_size
            if owner is not None and own > share and own > next_size:
                rested.append(heappop(self._turns))
                continue
            size -= next_size
            taken.append(self._take_next())
        for turn in rested:
            heappush(self._turns, turn)
        return taken

    def _is_shared(self) -> bool:
        """Whether several apps have been active lately."""
        self._batches += 1
        if self._batches % ACTIVE_BATCHES == 0:
            self._active, self._active_before = set(), self._active
        self._active.update(unit.owner for unit, _, _ in self._unsorted if unit.owner is not None)
        return len(self._active) > 1 or len(self._active | self._active_before) > 1

    def _check_space(self, owner: str | None, size: int) -> None:
        free_units, free_bytes = self._units_limit - self.units, self._bytes_limit - self.bytes
        # A unit that is larger than all the space may wait if no other does.
        if free_units <= 0 or (size > free_bytes and self.units):
            raise Overloaded
        self._sort()
        own = self._owners.get(owner)
        if own is None or owner is None:
            return
        if len(own.units) >= free_units or own.bytes >= free_bytes:
            raise Overloaded("Too many requests of this app are waiting; nothing was stored.")

    def _sort(self) -> None:
        for waiting in self._unsorted:
            owner = waiting[0].owner
            own = self._owners.get(owner)
            if own is None:
                own = self._owners[owner] = _OfOwner()
                self._arrivals += 1
                heappush(self._turns, (self._turn, self._arrivals, owner))
            own.units.append(waiting)
            own.bytes += waiting[1]
        self._unsorted.clear()

    def _take_all(self) -> list[Waiting]:
        taken = [waiting for own in self._owners.values() for waiting in own.units]
        taken += self._unsorted
        self._owners.clear()
        self._turns.clear()
        self._unsorted.clear()
        self.units = self.bytes = 0
        return taken

    def _take_next(self) -> Waiting:
        self._turn, arrival, owner = self._turns[0]
        own = self._owners[owner]
        waiting = own.units.popleft()
        size = waiting[1]
        own.bytes -= size
        self.units -= 1
        self.bytes -= size
        if own.units:
            heapreplace(self._turns, (self._turn + size, arrival, owner))
        else:
            heappop(self._turns)
            del self._owners[owner]
        return waiting


def size_of(unit: Unit) -> int:
    """Return about how many bytes a unit takes. A text counts by its characters: that is quick."""
    size = 0
    for _, rows, _ in unit.steps:
        size += ROW_BYTES * len(rows)
        for row in rows:
            for value in row:
                kind = type(value)
                if kind is str or kind is bytes:
                    size += len(value)
    return size or ROW_BYTES
