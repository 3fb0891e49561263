"""Cursors of lists, as callers give them back: two parts, a number and what breaks its ties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from clarion.errors import FieldFault, InvalidFields

T = TypeVar("T")

_LARGEST = (1 << 63) - 1


def write_cursor(number: int, rest: str) -> str:
    """Return the cursor of an entry."""
    return f"{number}-{rest}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Return the two parts of a cursor; `InvalidFields` if no page gave it."""
    number, _, rest = cursor.partition("-")
    if not number.isascii() or not number.isdecimal() or int(number) > _LARGEST or "\0" in rest:
        raise refuse_cursor()
    return int(number), rest


def refuse_cursor() -> InvalidFields:
    """Return the error for a cursor that no page gave."""
    return InvalidFields(FieldFault("after", "must be the `next` of a page of this list"))


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list and the cursor of the next, if there is one."""

    items: tuple[T, ...]
    next: str | None
