"""T23: quiet hours in every zone, over every change of its clock from 2026 to 2035."""

import datetime as dt
from collections.abc import Iterator
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clarion.events.decide.quiet_hours import find_end, is_quiet
from clarion.people.model import DEFAULT_QUIET_HOURS

START = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp())
END = int(dt.datetime(2036, 1, 1, tzinfo=dt.UTC).timestamp())
WEEK = 7 * 86_400
MINUTE_MS = 60_000
ZONES = sorted(available_timezones())
WINDOWS = {
    "over midnight": DEFAULT_QUIET_HOURS,
    "one hour": tuple(hour == 2 for hour in range(24)),
    "all but one": tuple(hour != 3 for hour in range(24)),
    "noon to noon but one": tuple(hour != 12 for hour in range(24)),
    "split": tuple(hour % 2 == 0 for hour in range(24)),
}


@cache
def changes(zone: str) -> tuple[int, ...]:
    """Return the seconds at which the zone's clock changes."""
    return tuple(_find_changes(ZoneInfo(zone)))


def _find_changes(zone: ZoneInfo) -> Iterator[int]:
    for week in range(START, END, WEEK):
        if _offset(week, zone) != _offset(week + WEEK, zone):
            yield _bisect(week, week + WEEK, zone)


def _bisect(low: int, high: int, zone: ZoneInfo) -> int:
    before = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return high


def _offset(second: int, zone: ZoneInfo) -> dt.timedelta | None:
    return dt.datetime.fromtimestamp(second, zone).utcoffset()


def slow_end(now: int, flags: tuple[bool, ...], zone: str) -> int:
    """The same by looking at every minute."""
    if not is_quiet(now, flags, zone):
        return now
    moment = now - now % MINUTE_MS
    while is_quiet(moment, flags, zone):
        moment += MINUTE_MS
    return moment


def test_the_zones_and_changes_are_those_we_promise_for() -> None:
    assert len(ZONES) >= 590
    assert sum(len(changes(zone)) for zone in ZONES) >= 4_000


@pytest.mark.parametrize("flags", WINDOWS.values(), ids=WINDOWS)
def test_around_every_change_the_end_is_the_first_minute_that_is_not_quiet(
    flags: tuple[bool, ...],
) -> None:
    for zone in ZONES:
        for change in changes(zone):
            # Half an hour before the change, inside the quiet hours or not.
            now = (change - 1_800) * 1000
            end = find_end(now, flags, zone)
            assert end == slow_end(now, flags, zone), (zone, change)
            assert end is not None
            assert not is_quiet(end, flags, zone)


@settings(max_examples=300)
@given(
    zone=st.sampled_from(ZONES),
    second=st.integers(START, END),
    flags=st.tuples(*[st.booleans()] * 24).filter(lambda flags: not all(flags)),
)
def test_at_any_moment_the_end_is_the_first_minute_that_is_not_quiet(
    zone: str, second: int, flags: tuple[bool, ...]
) -> None:
    assert find_end(second * 1000, flags, zone) == slow_end(second * 1000, flags, zone)


def test_a_day_that_is_all_quiet_has_no_end() -> None:
    assert find_end(START * 1000, (True,) * 24, "UTC") is None


def test_without_quiet_hours_it_is_now() -> None:
    assert find_end(START * 1000, (False,) * 24, "Europe/Berlin") == START * 1000


def test_an_end_that_clocks_skip_comes_with_the_change() -> None:
    """Berlin, 29 March 2026: 02:00 does not exist, quiet until 02:00 ends at 03:00."""
    flags = tuple(hour < 2 for hour in range(24))
    midnight = dt.datetime(2026, 3, 29, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    end = find_end(int(midnight.timestamp() * 1000), flags, "Europe/Berlin")
    assert end == int(dt.datetime(2026, 3, 29, 1, 0, tzinfo=dt.UTC).timestamp() * 1000)


def test_an_hour_that_clocks_repeat_is_quiet_twice() -> None:
    """Berlin, 25 October 2026: 02:00 comes twice, quiet until 03:00 lasts an hour longer."""
    flags = tuple(hour < 3 for hour in range(24))
    now = int(dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC).timestamp() * 1000)  # first 02:30
    end = find_end(now, flags, "Europe/Berlin")
    assert end == int(dt.datetime(2026, 10, 25, 2, 0, tzinfo=dt.UTC).timestamp() * 1000)
