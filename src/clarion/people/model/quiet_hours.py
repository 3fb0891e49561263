"""Quiet hours: how they are given, when they end in a time zone, across changes of clocks.

They are 24 flags, one for each hour of the day, or windows such as 22:30 to 07:00 on weekdays.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from clarion.clock import to_local
from clarion.fields import documented, instead

HOURS = 24
WINDOWS_LIMIT = 14
_DAY = HOURS * 60
_WEEK = 7 * _DAY
_MINUTE_MS = 60_000
_DAY_MS = _DAY * _MINUTE_MS
# Clocks change at most a few times in the week that quiet hours can last.
_CHANGES_LIMIT = 8
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


class Weekday(StrEnum):
    """A day of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


EVERY_DAY = tuple(Weekday)
TimeOfDay = Annotated[str, documented(pattern=f"^{_TIME.pattern}$")]


class QuietWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quiet from one time of the day to another, in the user's time zone.

    If `to` is not after `from`, the window ends on the next day. `days` are the days on which it
    begins.
    """

    start: TimeOfDay = msgspec.field(name="from")
    """When it begins, HH:MM."""
    end: TimeOfDay = msgspec.field(name="to")
    """When it ends, HH:MM."""
    days: Annotated[tuple[Weekday, ...], documented(minItems=1)] = EVERY_DAY
    """The days on which it begins; every day if left out."""


# All flags or all windows, never both: msgspec cannot distinguish two kinds of lists.
QuietHours: TypeAlias = tuple[bool | QuietWindow, ...]
# As a client may send them.
GivenQuietHours: TypeAlias = list[bool | QuietWindow] | QuietWindow
_WINDOW = {"$ref": "#/components/schemas/QuietWindow"}
QUIET_HOURS = instead(
    anyOf=[
        _WINDOW,
        {"type": "array", "items": _WINDOW, "minItems": 1, "maxItems": WINDOWS_LIMIT},
        {"type": "array", "items": {"type": "boolean"}, "minItems": HOURS, "maxItems": HOURS},
        {"type": "null"},
    ]
)


def check_quiet_hours(hours: Sequence[bool | QuietWindow] | QuietWindow) -> QuietHours:
    """Return quiet hours as they are stored; `ValueError` says what they must be."""
    if isinstance(hours, QuietWindow):
        hours = [hours]
    windows = [each for each in hours if isinstance(each, QuietWindow)]
    if not windows:
        if len(hours) != HOURS:
            raise ValueError(
                f"must have {HOURS} flags, one for each hour, or windows with `from` and `to`"
            )
        return tuple(hours)
    if len(windows) < len(hours):
        raise ValueError("must have flags or windows, not both")
    if len(windows) > WINDOWS_LIMIT:
        raise ValueError(f"must have at most {WINDOWS_LIMIT} windows")
    return tuple(_check_window(each) for each in windows)


def _check_window(window: QuietWindow) -> QuietWindow:
    for name, text in (("from", window.start), ("to", window.end)):
        if not _TIME.fullmatch(text):
            raise ValueError(f"`{name}` must be a time of the day, like 22:30")
    if not window.days:
        raise ValueError("`days` must name at least one day, or be left out for every day")
    chosen = tuple(day for day in EVERY_DAY if day in window.days)
    return QuietWindow(window.start, window.end, chosen)


def is_quiet(now: int, hours: QuietHours, timezone: str) -> bool:
    """Whether it is quiet in the user's time zone."""
    return bool(_expand(hours)[_minute_of_week(now, ZoneInfo(timezone))])


def find_end(now: int, hours: QuietHours, timezone: str) -> int | None:
    """Return the first moment from `now` on that is not quiet, or None.

    Quiet hours that would end in a skipped hour end at the change of clocks; an hour that occurs
    twice is quiet both times.
    """
    week, zone, moment = _expand(hours), ZoneInfo(timezone), now
    for _ in range(_CHANGES_LIMIT):
        minute = _minute_of_week(moment, zone)
        if not week[minute]:
            return moment
        length = _count_quiet(week, minute)
        if length is None:
            return None
        end = moment - moment % _MINUTE_MS + length * _MINUTE_MS
        change = _find_change(moment, end, zone)
        if change is None:
            return end
        moment = change
    return None


@lru_cache(maxsize=1024)
def _expand(hours: QuietHours) -> bytes:
    """Return a byte for each minute of the week, from Monday on: 1 if it is quiet."""
    week = bytearray(_WEEK)
    for position, each in enumerate(hours):
        if isinstance(each, QuietWindow):
            for start, length in _list_minutes(each):
                _fill(week, start, length)
        elif each:
            for day in range(7):
                _fill(week, day * _DAY + position * 60, 60)
    return bytes(week)


def _list_minutes(window: QuietWindow) -> list[tuple[int, int]]:
    start, end = _to_minute(window.start), _to_minute(window.end)
    length = (end - start) % _DAY or _DAY
    return [(EVERY_DAY.index(day) * _DAY + start, length) for day in window.days]


def _to_minute(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


def _fill(week: bytearray, start: int, length: int) -> None:
    """Mark minutes as quiet; what exceeds Sunday continues on Monday."""
    until = start + length
    week[start : min(until, _WEEK)] = b"\1" * (min(until, _WEEK) - start)
    if until > _WEEK:
        week[: until - _WEEK] = b"\1" * (until - _WEEK)


def _count_quiet(week: bytes, minute: int) -> int | None:
    """Return for how many minutes it stays quiet; None if it never ends."""
    end = week.find(0, minute)
    if end < 0:
        end = week.find(0)
        return None if end < 0 else end + _WEEK - minute
    return end - minute


def _find_change(start: int, end: int, zone: ZoneInfo) -> int | None:
    """Return the first moment between two at which clocks change, or None."""
    low, before = start, _offset(start, zone)
    while low < end:
        high = min(low + _DAY_MS, end)
        if _offset(high, zone) != before:
            return _bisect(low, high, zone)
        low = high
    return None


def _bisect(low: int, high: int, zone: ZoneInfo) -> int:
    before = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return high


def _offset(moment: int, zone: ZoneInfo) -> dt.timedelta | None:
    return to_local(moment, zone).utcoffset()


def _minute_of_week(moment: int, zone: ZoneInfo) -> int:
    local = to_local(moment, zone)
    return local.weekday() * _DAY + local.hour * 60 + local.minute
