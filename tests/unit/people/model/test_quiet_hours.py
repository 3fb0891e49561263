"""T23: quiet hours in every zone, over every change of its clock from 2026 to 2035."""

import datetime as dt
from collections.abc import Iterator
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clarion.clock import EARLIEST_MS, LATEST_MS
from clarion.people.model import DEFAULT_QUIET_HOURS
from clarion.people.model.quiet_hours import (
    QuietHours,
    QuietWindow,
    Weekday,
    check_quiet_hours,
    find_end,
    is_quiet,
)

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
    "a window over midnight": (QuietWindow("22:30", "06:45"),),
    "a window in the night": (QuietWindow("01:20", "02:40"),),
    "the weekend": (
        QuietWindow("18:00", "18:00", (Weekday.FRI, Weekday.SAT)),
        QuietWindow("23:59", "00:01"),
    ),
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


def slow_end(now: int, flags: QuietHours, zone: str) -> int:
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
    flags: QuietHours,
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


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("now", [-(2**63), EARLIEST_MS, LATEST_MS, 2**63 - 1])
def test_the_first_and_the_last_times_have_an_end(now: int, zone: str) -> None:
    end = find_end(now, DEFAULT_QUIET_HOURS, zone)
    assert end is not None
    assert end >= now


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


def local(text: str, zone: str = "Europe/Berlin") -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


times = st.times().map(lambda time: f"{time:%H:%M}")
windows = st.builds(
    QuietWindow, times, times, st.sets(st.sampled_from(list(Weekday)), min_size=1).map(tuple)
)


def is_inside(window: QuietWindow, moment: dt.datetime) -> bool:
    """The meaning of a window, written apart: did it begin today or yesterday?"""
    time, days = f"{moment:%H:%M}", list(Weekday)
    begins_today = days[moment.weekday()] in window.days
    began_yesterday = days[moment.weekday() - 1] in window.days
    if window.start < window.end:
        return begins_today and window.start <= time < window.end
    return (begins_today and time >= window.start) or (began_yesterday and time < window.end)


@settings(max_examples=300)
@given(
    zone=st.sampled_from(ZONES),
    second=st.integers(START, END),
    hours=st.lists(windows, min_size=1, max_size=4),
)
def test_a_moment_is_quiet_if_it_is_in_a_window(
    zone: str, second: int, hours: list[QuietWindow]
) -> None:
    moment = dt.datetime.fromtimestamp(second, ZoneInfo(zone))
    expected = any(is_inside(window, moment) for window in hours)
    assert is_quiet(second * 1000, check_quiet_hours(hours), zone) is expected


@settings(max_examples=100)
@given(zone=st.sampled_from(ZONES), second=st.integers(START, END), window=windows)
def test_windows_end_at_the_first_minute_that_is_not_quiet(
    zone: str, second: int, window: QuietWindow
) -> None:
    end = find_end(second * 1000, (window,), zone)
    if end is None:
        assert window.start == window.end
        assert len(window.days) == 7
    else:
        assert end == slow_end(second * 1000, (window,), zone)


def test_a_window_begins_on_its_days_and_ends_on_the_next() -> None:
    nights_before_work = (QuietWindow("22:30", "07:15", (Weekday.SUN, Weekday.MON)),)
    monday_night = local("2026-11-16T23:00")
    assert find_end(monday_night, nights_before_work, "Europe/Berlin") == local("2026-11-17T07:15")
    tuesday_night = local("2026-11-17T23:00")
    assert find_end(tuesday_night, nights_before_work, "Europe/Berlin") == tuesday_night
    sunday_night = local("2026-11-15T22:30")
    assert find_end(sunday_night, nights_before_work, "Europe/Berlin") == local("2026-11-16T07:15")


def test_a_window_that_ends_in_a_skipped_hour_ends_at_the_change() -> None:
    now = local("2026-03-29T01:00")
    end = find_end(now, (QuietWindow("00:30", "02:30"),), "Europe/Berlin")
    assert end == local("2026-03-29T03:00")


def test_windows_that_follow_each_other_are_one() -> None:
    hours = (QuietWindow("20:00", "23:00"), QuietWindow("23:00", "05:30"))
    assert find_end(local("2026-11-16T21:00"), hours, "Europe/Berlin") == local("2026-11-17T05:30")


def test_windows_are_stored_in_one_form() -> None:
    given = QuietWindow("22:00", "07:00", (Weekday.SUN, Weekday.MON, Weekday.SUN))
    assert check_quiet_hours(given) == (QuietWindow("22:00", "07:00", (Weekday.MON, Weekday.SUN)),)


@pytest.mark.parametrize(
    "hours",
    [
        [],
        [True] * 23,
        [QuietWindow("22:00", "07:00"), True],
        [QuietWindow("24:00", "07:00")],
        [QuietWindow("22:00", "7:00")],
        [QuietWindow("22:00", "07:60")],
        [QuietWindow("22:00", "٠٧:00")],
        [QuietWindow("22:00", "07:00", ())],
        [QuietWindow("22:00", "07:00")] * 15,
    ],
)
def test_what_cannot_be_quiet_hours_is_refused(hours: list[bool | QuietWindow]) -> None:
    with pytest.raises(ValueError, match="must"):
        check_quiet_hours(hours)
