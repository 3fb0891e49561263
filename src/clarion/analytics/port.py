"""Counting what happened, and reading the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from clarion.analytics.model import Cell, Count, Interval, Progress, Query


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


class Analytics(Protocol):
    """Reads counts. The cost depends on the range and the dimensions alone."""

    async def read(self, query: Query, limit: int) -> Sequence[Count]:
        """Return at most so many counts in the order of time, without those that are zero."""

    async def get_progress(self) -> Progress | None:
        """Return how far everything is counted; None if nothing ever was."""

    async def prune(self, interval: Interval, before: int, limit: int) -> int:
        """Delete at most so many counts that begin before a time; return how many."""
