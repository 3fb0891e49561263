"""When quiet hours end in the user's time zone, across changes of clocks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from zoneinfo import ZoneInfo

# Today's zone offsets and changes of clocks are multiples of 15 minutes, so a local hour can begin
# only at a quarter of an hour in UTC.
_QUARTER_MS = 15 * 60 * 1000
# More than a day: a clock that is set back makes some days longer.
_QUARTERS = 26 * 4
HOURS = 24


def is_quiet(now: int, flags: Sequence[bool], timezone: str) -> bool:
    """Whether the user's local hour is a quiet one."""
    return flags[_local_hour(now, ZoneInfo(timezone))]


def find_end(now: int, flags: Sequence[bool], timezone: str) -> int | None:
    """Return the first moment from `now` on that is not quiet; None if every hour is.

    Quiet hours that would end in a skipped hour end at the change of clocks; an hour that occurs
    twice is quiet both times.
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
