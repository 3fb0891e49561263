"""The conservation ledger: everything that was accepted is finished, waiting or in progress.

An event or delivery that is none of these is lost: it is open, and no job will ever end it. That
must never happen, so this searches for it in the background, a bounded part at a time: each minute
of the past is checked after two minutes, after an hour and after a day.
"""

from __future__ import annotations

from clarion.events.port import Ledger
from clarion.telemetry.logs import get_logger

MINUTE_MS = 60_000
AGES_MS = (2 * MINUTE_MS, 60 * MINUTE_MS, 24 * 60 * MINUTE_MS)
# The time that one step checks; a longer gap, while the server was stopped, is skipped.
STEP_MS, SKIP_MS = MINUTE_MS, 60 * MINUTE_MS
# More than these are not remembered: one is a fault already.
LOST_LIMIT = 100


class LedgerCheck:
    """Searches for lost events and notifications, and checks again those it found."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # By age: up to which time everything of that age is checked.
        self._checked_until: dict[int, int] = {}
        # Found once, and found again.
        self._suspects: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()
        self.checked = 0

    @property
    def difference(self) -> int:
        """How many events and notifications are known to be lost."""
        return len(self._lost)

    async def step(self, now: int) -> int:
        """Check the rows that reached an age since the last step, at most a minute of each age."""
        lost = {each for each in self._lost | self._suspects if await self._ledger.is_lost(each)}
        if new := lost - self._lost:
            get_logger().error("ledger_difference", lost=sorted(new), count=len(lost))
        self._lost = frozenset(lost)
        found: frozenset[str] = frozenset()
        for age_ms in AGES_MS:
            until = now - age_ms
            since = max(self._checked_until.get(age_ms, until - STEP_MS), until - SKIP_MS)
            until = min(until, since + STEP_MS)
            if since < until:
                found |= await self._ledger.find_lost(since, until, LOST_LIMIT)
                self._checked_until[age_ms] = until
        # What is found may have been written since the first of several reads: it counts when it
        # is found again.
        self._suspects = frozenset(sorted(found - self._lost)[: LOST_LIMIT - len(self._lost)])
        self.checked += 1
        return 0
