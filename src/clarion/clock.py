"""The clock: the one place that asks the system for the time.

With SQLite, the time is that of this machine. With PostgreSQL it is that of the database, which all
nodes share: `store/postgres/clock.py` measures how far this machine is off.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Protocol

import uuid_utils

# Integer arithmetic throughout: a float would lose milliseconds.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# RFC 9562, 5.7: after the 48 bits of the time, 12 and 62 bits are free.
_VERSION, _VARIANT = 7 << 12, 2 << 62
_LOW_BITS, _TAIL_BITS = 62, 74
# The times that can be written: those of the years 1 to 9999.
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
# Within two days of these it is another year somewhere, or tomorrow is.
_FIRST_LOCAL_MS, _LAST_LOCAL_MS = EARLIEST_MS + 172_800_000, LATEST_MS - 172_800_000
_SECONDS = tuple(f"{each:02}" for each in range(60))
_MILLISECONDS = tuple(f".{each:03}Z" for each in range(1000))


class Clock(Protocol):
    """The one source of time and of ids."""

    def now(self) -> int:
        """Return the milliseconds since 1970, UTC, for times that are stored or shown."""

    def monotonic(self) -> int:
        """Return the milliseconds of a clock that is never set, for measuring durations."""

    def new_id(self) -> str:
        """Return a new UUIDv7; ids made later sort later."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def new_id(self) -> str:
        return str(uuid_utils.uuid7())


class SteadyClock:
    """Follows another clock, which may be set; a step of that clock is not taken until `follow`.

    Planned work, such as a retry, is moved before or after that; counts in windows of time
    continue.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now() - clock.monotonic()
        self.monotonic = clock.monotonic
        self.new_id = clock.new_id

    def now(self) -> int:
        return self._clock.monotonic() + self._offset_ms

    @property
    def step_ms(self) -> int:
        """By how much the other clock was set, since this one followed it."""
        return self._clock.now() - self.now()

    def follow(self, step_ms: int) -> None:
        """Take over a step."""
        self._offset_ms += step_ms


class MovableClock:
    """Another clock, moved ahead by a test; it runs on from there.

    Its ids stay those of the other clock: they sort in the order in which they are made.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = 0
        self.new_id = clock.new_id

    def now(self) -> int:
        return self._clock.now() + self._ahead_ms

    def monotonic(self) -> int:
        return self._clock.monotonic() + self._ahead_ms

    def move_to(self, moment: int) -> None:
        """Make it this time now; it never goes back."""
        self._ahead_ms += max(0, moment - self.now())


class SortedIds:
    """Makes UUIDv7 for times that are not those of the system: ids made later sort later.

    Those of one millisecond, and those made while the clock is set back, count up from a random
    number.
    """

    def __init__(self) -> None:
        self._random = random.SystemRandom()
        self._moment = self._tail = 0

    def make(self, now: int) -> str:
        """Return the id of something that is made at this time."""
        if now > self._moment:
            self._moment, self._tail = now, self._random.getrandbits(_TAIL_BITS - 1)
        else:
            self._tail += 1 + self._random.getrandbits(32)
        high, low = divmod(self._tail, 1 << _LOW_BITS)
        text = f"{self._moment:012x}{_VERSION | high:04x}{_VARIANT | low:016x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def to_monotonic(clock: Clock, moment: int | None) -> int | None:
    """Return a time of day as a reading of the monotonic clock, as far away from now."""
    return None if moment is None else clock.monotonic() + moment - clock.now()


def from_monotonic(clock: Clock, reading: int) -> int:
    """Return a reading of the monotonic clock as a time of day, as far away from now."""
    return clock.now() + reading - clock.monotonic()


def to_rfc3339(milliseconds: int) -> str:
    """Return a time as the API writes it: UTC, with milliseconds."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    return _write_minute(minutes) + _SECONDS[second] + _MILLISECONDS[rest]


@lru_cache(maxsize=4096)
def _write_minute(minutes: int) -> str:
    # Cached: most times that are written are within the last hours. A page has dozens of them.
    # What cannot be written is written as the nearest: a list must not fail for one of its rows.
    minutes = min(max(minutes, EARLIEST_MS // 60_000), LATEST_MS // 60_000)
    return (_EPOCH + timedelta(minutes=minutes)).isoformat()[:17]


def to_milliseconds(moment: datetime) -> int:
    """Return the milliseconds since 1970 of a time with an offset."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def to_datetime(milliseconds: int) -> datetime:
    """Return a time as a datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def to_local(milliseconds: int, zone: tzinfo) -> datetime:
    """Return a time in a zone; the nearest that it can be in every zone."""
    nearest = min(max(milliseconds, _FIRST_LOCAL_MS), _LAST_LOCAL_MS)
    return datetime.fromtimestamp(nearest / 1000, zone)


def first_id_of(moment: int) -> str:
    """Return a text that sorts before every id made at that time or later."""
    digits = f"{max(moment, 0):012x}"
    return f"{digits[:8]}-{digits[8:]}"
