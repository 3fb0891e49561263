"""Pages of lists and their cursors: a number, and a text that breaks ties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from clarion.errors import FieldFault, InvalidFields

T = TypeVar("T")
R = TypeVar("R")

PAGE_DEFAULT = 20
# As many rows are read for a page with several conditions: some milliseconds.
READ_FOR_PAGE = 200
# What an integer column can hold.
LARGEST = (1 << 63) - 1


def parse_number(text: str) -> int | None:
    """Return the number from 0 to `LARGEST` that the text is, in decimal digits, or None."""
    # Python raises an error for thousands of digits.
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST))
    return int(text) if is_number and int(text) <= LARGEST else None


def write_cursor(number: int, rest: str) -> str:
    """Return the cursor that continues after an entry."""
    return f"{number}-{rest}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Return the two parts of a cursor; `InvalidFields` if it was not created by Clarion."""
    first, _, rest = cursor.partition("-")
    number = parse_number(first)
    if number is None or "\0" in rest:
        raise refuse_cursor()
    return number, rest


def refuse_cursor() -> InvalidFields:
    """Return the error for a cursor that was not created by Clarion."""
    return InvalidFields(FieldFault("after", "must be the value of `next` in a page of this list"))


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, and the cursor of the next page, if there is one."""

    items: tuple[T, ...]
    next: str | None


def cut_page(found: Sequence[T], limit: int, place_of: Callable[[T], str]) -> Page[T]:
    """Return the page of the first `limit` items; if there are more, with the last one's place."""
    items = tuple(found[:limit])
    return Page(items, place_of(items[-1]) if len(found) > limit else None)


def fill_page(
    rows: Sequence[R],
    *,
    read: int,
    limit: int,
    item_of: Callable[[R], T | None],
    place_of: Callable[[R], str],
) -> Page[T]:
    """Return a page of the first `limit` items of rows; None is not an item.

    There are at most `read` rows, and one more if more could be read. A page may have fewer items
    than `limit`, even none, and a cursor: that is how a filter without an index stays bounded.
    """
    items: list[T] = []
    for number, row in enumerate(rows[:read], 1):
        item = item_of(row)
        if item is not None:
            items.append(item)
        if len(items) == limit or number == read:
            return Page(tuple(items), place_of(row) if number < len(rows) else None)
    return Page(tuple(items), None)
