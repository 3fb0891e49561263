"""The cursors of pages."""

import pytest

from clarion.errors import InvalidFields
from clarion.pages import LARGEST, Page, fill_page, read_cursor, write_cursor


@pytest.mark.parametrize("number", [0, 7, LARGEST])
def test_a_cursor_is_read_as_it_was_written(number: int) -> None:
    assert read_cursor(write_cursor(number, "a-b")) == (number, "a-b")


@pytest.mark.parametrize("number", ["", "x", "-1", "1.0", "٣", str(LARGEST + 1), "1" * 5_000])
def test_a_number_that_no_cursor_has_is_refused(number: str) -> None:
    with pytest.raises(InvalidFields, match="after"):
        read_cursor(f"{number}-a")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], Page((), None)),
        ([2, 4], Page((2, 4), None)),
        ([2, 3, 4, 6], Page((2, 4), "4")),  # the page is full, and there are more
        ([1, 3, 5, 7], Page((), None)),
        ([1, 3, 5, 7, 8], Page((), "7")),  # as much is read as may be, and there is more
        ([1, 3, 4], Page((4,), None)),
    ],
)
def test_a_page_is_filled_from_what_may_be_read(rows: list[int], expected: Page[int]) -> None:
    page = fill_page(
        rows, read=4, limit=2, item_of=lambda row: None if row % 2 else row, place_of=str
    )
    assert page == expected
