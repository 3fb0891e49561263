"""Counting what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from clarion.analytics.model import Cell, Progress


class Tally(Protocol):
    """Counts what is stored, and adds the counts to those of minutes, hours and days."""

    async def start(self, now: int) -> Progress:
        """Return how far everything is counted; if nothing ever was, it begins an hour ago."""

    async def count(self, since: int, until: int) -> Mapping[Cell, int]:
        """Count what happened from a time on and before another.

        Whatever happens later, the counts of a time never grow, except by what was committed after
        they were made. What is erased is not counted any more.
        """

    async def read_minute(self, at: int) -> Mapping[Cell, int]:
        """Return what was added for a minute, of all apps."""

    async def add(
        self, before: Progress, after: Progress, counts: Mapping[int, Mapping[Cell, int]]
    ) -> bool:
        """Add counts to those of the minutes that begin at these times, and of hours and days.

        The progress is stored in the same commit. False, and nothing is added, if it is not as it
        was `before`: somebody else has counted meanwhile.
        """
