"""Counts what happened since the last time, every few seconds.

The time up to which everything is counted is stored in the commit that adds the counts, so that
nothing is added twice, even if a commit fails or several nodes count. Rows that are committed late,
with a time that was already counted, are found two minutes later, when each minute is counted
again and the difference is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from clarion.analytics.model import HOUR_MS, MINUTE_MS, Cell, Interval, RollupProgress
from clarion.analytics.sql.aggregates import RollupCounts
from clarion.errors import ReadTooSlow

# Most rows with a time are committed within this time after it.
LAG_MS = 5_000
SETTLE_MS = 2 * MINUTE_MS
SHORTEST_MS = 1_000
# In one commit. After a long break there is much to catch up with.
PARTS = 30
Counts = dict[int, Counter[Cell]]


@dataclass(frozen=True, slots=True)
class Rollup:
    """Adds what happened to the counts of minutes, hours and days."""

    tally: RollupCounts
    # What a step returns if there is more to do at once.
    more: int

    async def step(self, now: int) -> int:
        """Count a part of the rows that are not counted yet."""
        before = await self.tally.start(now)
        counts: Counts = {}
        counted = await self._count_new(before.counted_until, now - LAG_MS, counts)
        # If the clock was set back, times repeat that were counted.
        settled = min(before.settled_until, Interval.MINUTE.begin(max(now, 0)))
        settling = Interval.MINUTE.begin(min(before.counted_until, now - SETTLE_MS))
        settled = await self._settle(settled, settling, counts)
        after = RollupProgress(before.turn + 1, counted, settled)
        if _is_worth_a_commit(before, after, counts):
            await self.tally.add(before, after, counts)
        return self.more if counted < now - LAG_MS or settled < settling else 0

    async def _count_new(self, since: int, end: int, counts: Counts) -> int:
        """Count new rows; return the time up to which everything is counted."""
        async for part_since, part_until, found in self._count_parts(since, end):
            _add(counts, Interval.MINUTE.begin(part_since), found)
            since = part_until
        return since

    async def _settle(self, minute: int, end: int, counts: Counts) -> int:
        """Count minutes again, and add what was missing; return the time up to which it is done."""
        async for since, until, found in self._count_parts(minute, end):
            if found:
                _add(counts, since, find_missing(found, await self.tally.read_minute(since)))
            minute = until
        return minute

    async def _count_parts(
        self, since: int, end: int
    ) -> AsyncIterator[tuple[int, int, Mapping[Cell, int]]]:
        """Yield some parts of a time and what happened in them, each within one minute.

        A part in which nothing happened may be longer: a break is caught up with quickly.
        """
        length = MINUTE_MS
        for _ in range(PARTS):
            if since >= end:
                return
            minute = Interval.MINUTE.begin(since)
            until = min(minute + length, end)
            found = await self._count(since, until)
            if found and until > minute + MINUTE_MS:
                length = MINUTE_MS
                continue
            yield since, until, found
            length = MINUTE_MS if found else min(2 * length, HOUR_MS)
            since = until

    async def _count(self, since: int, until: int) -> Mapping[Cell, int]:
        """Count a time; if so much happened in it that this takes too long, in halves."""
        try:
            return await self.tally.count(since, until)
        except ReadTooSlow:
            middle = (since + until) // 2
            if until - since <= SHORTEST_MS:
                raise
            halves = [await self._count(since, middle), await self._count(middle, until)]
            return Counter(halves[0]) + Counter(halves[1])


def _add(counts: Counts, minute: int, found: Mapping[Cell, int]) -> None:
    if found:
        counts.setdefault(minute, Counter()).update(found)


def find_missing(found: Mapping[Cell, int], stored: Mapping[Cell, int]) -> Mapping[Cell, int]:
    """Return what was counted but is not stored.

    Never more than the total over all platforms: the device of a message may have been deleted
    since, and with it the platform.
    """
    growth: Counter[Cell] = Counter()
    for cells, sign in ((found, 1), (stored, -1)):
        for cell, value in cells.items():
            growth[cell._replace(platform="")] += sign * value
    missing: dict[Cell, int] = {}
    for cell, value in found.items():
        whole = cell._replace(platform="")
        late = min(value - stored.get(cell, 0), growth[whole])
        if late > 0:
            missing[cell] = late
            growth[whole] -= late
    return missing


def _is_worth_a_commit(before: RollupProgress, after: RollupProgress, counts: Counts) -> bool:
    """Whether something was counted or a minute is over: a server without work writes little."""
    minute = Interval.MINUTE.begin
    is_over = minute(before.counted_until) != minute(after.counted_until)
    return is_over or before.settled_until != after.settled_until or bool(counts)
