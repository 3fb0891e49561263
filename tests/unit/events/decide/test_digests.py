"""When digests are due."""

import datetime as dt
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.catalog.model import Digest
from clarion.clock import EARLIEST_MS, LATEST_MS
from clarion.events.decide.digests import find_due

DAILY = Digest(daily_at="09:30")


def at(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def test_a_window_begins_with_the_first() -> None:
    assert find_due(Digest(window_s=90), 1_000, "UTC") == 91_000


@pytest.mark.parametrize(
    ("now", "zone", "expected"),
    [
        ("2026-05-01T07:00:00Z", "UTC", "2026-05-01T09:30:00Z"),
        ("2026-05-01T09:29:59Z", "UTC", "2026-05-01T09:30:00Z"),
        ("2026-05-01T09:30:00Z", "UTC", "2026-05-02T09:30:00Z"),
        ("2026-05-01T08:00:00Z", "Europe/Berlin", "2026-05-02T07:30:00Z"),
        ("2026-05-01T23:30:00Z", "Asia/Tokyo", "2026-05-02T00:30:00Z"),
        # The night in which the clock is set forward is an hour shorter.
        ("2026-03-28T12:00:00Z", "Europe/Berlin", "2026-03-29T07:30:00Z"),
    ],
)
def test_a_daily_digest_is_due_in_the_users_time_zone(now: str, zone: str, expected: str) -> None:
    assert find_due(DAILY, at(now), zone) == at(expected)


def test_a_time_that_the_clock_skips_is_due_when_it_would_have_been() -> None:
    due = find_due(Digest(daily_at="02:30"), at("2026-03-28T12:00:00Z"), "Europe/Berlin")
    assert due == at("2026-03-29T01:30:00Z")


def test_a_time_that_occurs_twice_is_due_at_the_first() -> None:
    due = find_due(Digest(daily_at="02:30"), at("2026-10-24T12:00:00Z"), "Europe/Berlin")
    assert due == at("2026-10-25T00:30:00Z")


@given(
    now=st.integers(at("2026-01-01T00:00:00Z"), at("2036-01-01T00:00:00Z")),
    zone=st.sampled_from(sorted(available_timezones())),
    minute=st.integers(0, 24 * 60 - 1),
)
def test_a_daily_one_is_due_within_a_day_and_a_bit(now: int, zone: str, minute: int) -> None:
    clock = f"{minute // 60:02}:{minute % 60:02}"
    due = find_due(Digest(daily_at=clock), now, zone)
    assert now < due <= now + 26 * 3_600_000
    shown = dt.datetime.fromtimestamp(due / 1000, ZoneInfo(zone))
    offset = (shown.hour * 60 + shown.minute - minute) % (24 * 60)
    assert offset == 0 or is_skipped(shown - dt.timedelta(minutes=offset), ZoneInfo(zone))


def is_skipped(shown: dt.datetime, zone: ZoneInfo) -> bool:
    """Whether the clock never shows this time on this day."""
    there = shown.replace(tzinfo=zone, fold=0).astimezone(dt.UTC).astimezone(zone)
    return there.replace(tzinfo=None) != shown.replace(tzinfo=None)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("now", [EARLIEST_MS, LATEST_MS])
def test_the_first_and_the_last_times_have_a_daily_one(now: int, zone: str) -> None:
    assert abs(find_due(Digest(daily_at="09:00"), now, zone) - now) <= 3 * 86_400_000
