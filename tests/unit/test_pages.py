"""The cursors of pages."""

import pytest

from clarion.errors import InvalidFields
from clarion.pages import LARGEST, read_cursor, write_cursor


@pytest.mark.parametrize("number", [0, 7, LARGEST])
def test_a_cursor_is_read_as_it_was_written(number: int) -> None:
    assert read_cursor(write_cursor(number, "a-b")) == (number, "a-b")


@pytest.mark.parametrize("number", ["", "x", "-1", "1.0", "٣", str(LARGEST + 1), "1" * 5_000])
def test_a_number_that_no_cursor_has_is_refused(number: str) -> None:
    with pytest.raises(InvalidFields, match="after"):
        read_cursor(f"{number}-a")
