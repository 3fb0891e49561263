"""Shapes of the API: pages and times."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.clock import EARLIEST_MS, LATEST_MS
from clarion.errors import InvalidFields
from clarion.http.shapes import check_limit, to_milliseconds, to_wire
from tests.factories import NOW


@pytest.mark.parametrize("limit", [1, 20, 100])
def test_a_page_has_1_to_100_items(limit: int) -> None:
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_another_page_is_refused(limit: int) -> None:
    with pytest.raises(InvalidFields, match="limit: must be from 1 to 100"):
        check_limit(limit)


@given(st.integers(EARLIEST_MS, LATEST_MS))
def test_a_time_comes_back_from_the_wire_as_it_went(milliseconds: int) -> None:
    text = to_wire(milliseconds)
    assert text is not None
    assert to_milliseconds(dt.datetime.fromisoformat(text), "at") == milliseconds


def test_no_time_is_no_time() -> None:
    assert to_wire(None) is None
    assert to_milliseconds(None, "at") is None
    assert to_wire(0) == "1970-01-01T00:00:00.000Z"


def test_an_offset_is_taken_into_account() -> None:
    moment = dt.datetime.fromisoformat("2026-01-01T02:00:00+02:00")
    assert to_milliseconds(moment, "at") == NOW


def test_a_time_without_an_offset_is_refused() -> None:
    with pytest.raises(InvalidFields, match="at: must have an offset"):
        to_milliseconds(dt.datetime.fromisoformat("2026-01-01T02:00:00"), "at")


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_cannot_be_written_in_utc_is_refused(text: str) -> None:
    with pytest.raises(InvalidFields, match="at: must be in the years 1 to 9999 in UTC"):
        to_milliseconds(dt.datetime.fromisoformat(text), "at")
