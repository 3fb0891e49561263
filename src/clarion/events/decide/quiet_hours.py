"""When quiet hours end, by the person's own clock, over every change of that clock."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

# Every zone's offset is a multiple of a quarter of an hour today, and so are the moments at which
# clocks change: a local hour can begin only at a quarter of UTC.
_QUARTER_MS = 15 * 60 * 1000
# Longer than a day, for a clock set back makes some days longer.
_QUARTERS = 26 * 4
HOURS = 24


def is_quiet(now: int, flags: Sequence[bool], timezone: str) -> bool:
    """Whether the hour that the person's clock shows is a quiet one."""
    return flags[_local_hour(now, ZoneInfo(timezone))]


def find_end(now: int, flags: Sequence[bool], timezone: str) -> int | None:
    """Return the first moment from `now` on that is not quiet; None if every hour is.

    A moment that clocks skip does not exist, so quiet hours that would end in it end with the
    change; an hour that clocks repeat is quiet both times.
    """
    if not is_quiet(now, flags, timezone):
        return now
    if all(flags):
        return None
    zone = ZoneInfo(timezone)
    moment = now - now % _QUARTER_MS
    for _ in range(_QUARTERS):
        moment += _QUARTER_MS
        if not flags[_local_hour(moment, zone)]:
            return moment
    return None


def _local_hour(moment: int, zone: ZoneInfo) -> int:
    return dt.datetime.fromtimestamp(moment / 1000, zone).hour
