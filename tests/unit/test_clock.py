"""The clock: now, ids that sort, and times as the API writes them."""

import datetime as dt
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.clock import (
    EARLIEST_MS,
    LATEST_MS,
    MovableClock,
    SystemClock,
    from_monotonic,
    to_milliseconds,
    to_monotonic,
    to_rfc3339,
)
from tests.factories import NOW, FixedClock


def test_now_is_now_in_milliseconds() -> None:
    before = dt.datetime.now(dt.UTC).timestamp() * 1000
    assert before - 1 <= SystemClock().now() <= dt.datetime.now(dt.UTC).timestamp() * 1000 + 1


def test_the_monotonic_clock_counts_milliseconds_and_never_goes_back() -> None:
    readings = [SystemClock().monotonic() for _ in range(1_000)]
    assert readings == sorted(readings)
    assert abs(readings[-1] - time.monotonic() * 1000) < 60_000


def test_ids_are_uuid_7_and_later_ones_sort_later() -> None:
    ids = [SystemClock().new_id() for _ in range(1_000)]
    assert ids == sorted(set(ids))
    assert {uuid.UUID(each).version for each in ids} == {7}


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW, "2026-01-01T00:00:00.000Z"),
        (NOW + 1, "2026-01-01T00:00:00.001Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_written_in_utc_to_the_millisecond(milliseconds: int, text: str) -> None:
    assert to_rfc3339(milliseconds) == text


def test_a_reading_of_the_monotonic_clock_is_shown_as_a_time_of_day() -> None:
    clock = FixedClock()
    clock.step(NOW - 7)
    reading = clock.monotonic()
    clock.advance(1_000)
    assert from_monotonic(clock, reading) == clock.now() - 1_000
    assert to_monotonic(clock, from_monotonic(clock, reading)) == reading


@given(st.integers(EARLIEST_MS, LATEST_MS))
def test_no_millisecond_is_lost_in_writing(milliseconds: int) -> None:
    read = dt.datetime.fromisoformat(to_rfc3339(milliseconds))
    assert to_milliseconds(read) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "day"), [(-(2**63), "0001-01-01"), (2**63 - 1, "9999-12-31")]
)
def test_what_cannot_be_written_is_written_as_the_nearest_day(milliseconds: int, day: str) -> None:
    assert to_rfc3339(milliseconds)[:10] == day


def test_a_moved_clock_runs_on_and_never_goes_back() -> None:
    system = FixedClock()
    clock = MovableClock(system)
    clock.move_to(NOW + 3_600_000)
    assert (clock.now(), clock.monotonic()) == (NOW + 3_600_000, NOW + 3_600_000)
    system.advance(5)
    assert (clock.now(), clock.monotonic()) == (NOW + 3_600_005, NOW + 3_600_005)
    clock.move_to(0)
    assert (clock.now(), clock.monotonic()) == (NOW + 3_600_005, NOW + 3_600_005)
    assert clock.new_id() < clock.new_id()
