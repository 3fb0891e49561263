"""Pages, fields and times of the API that several slices use."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Generic, TypeVar

import msgspec

from clarion import clock
from clarion.errors import FieldFault, InvalidFields
from clarion.http.asgi import Parameter as FastParameter
from clarion.http.bodies import collect

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=StrEnum)
# Null resets one to its default.
Toggles = dict[str, bool | None]
PAGE_LIMIT = 100
_FLAGS = {"true": True, "1": True, "false": False, "0": False}

IdempotencyKeyText = Annotated[
    str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": 255})
]
IDEMPOTENCY_KEY = FastParameter(
    "Idempotency-Key",
    "header",
    IdempotencyKeyText,
    "A repeat within 24 hours gets the first response.",
)


class Items(msgspec.Struct, Generic[T]):
    """A page of a list; `next` is the value for `?after=`, or null on the last page."""

    items: list[T]
    """The items of this page."""
    next: str | None
    """The value of `?after=` for the next page; null on the last page."""


def check_choice(choices: type[E], text: str) -> E:
    """Return the member of an enum; `ValueError` lists its members."""
    if text not in set(choices):
        raise ValueError(f"must be one of {', '.join(choices)}")
    return choices(text)


def check_name(names: Collection[str], text: str) -> str:
    """Return a name that is among those of the app; `ValueError` lists them."""
    if text not in names:
        raise ValueError(f"must be one of {', '.join(names)}")
    return text


def check_toggle_names(place: str, toggles: Toggles, names: Collection[str]) -> Toggles:
    """Return toggles by name; `InvalidFields` names unknown ones.

    The toggle of a deleted name can still be reset.
    """
    given = [name for name, on in toggles.items() if on is not None]
    collect({f"{place}.{name}": partial(check_name, names, name) for name in given})
    return toggles


def check_toggles(place: str, toggles: Toggles, choices: type[E]) -> dict[E, bool | None]:
    """Return toggles by the members of an enum; `InvalidFields` names unknown ones."""
    checks = {f"{place}.{name}": partial(check_choice, choices, name) for name in toggles}
    return dict(zip(collect(checks).values(), toggles.values(), strict=True))


def check_limit(limit: int) -> int:
    """Return the page size; `InvalidFields` if it is out of range."""
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidFields(FieldFault("limit", f"must be from 1 to {PAGE_LIMIT}"))
    return limit


def to_milliseconds(moment: datetime | None, field: str) -> int | None:
    """Return a time of a request in milliseconds; `InvalidFields` if it cannot be shown again."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidFields(FieldFault(field, "must have an offset, like 2026-01-31T12:00:00Z"))
    milliseconds = clock.to_milliseconds(moment)
    # With its offset it can be written, and yet not in UTC.
    if not clock.EARLIEST_MS <= milliseconds <= clock.LATEST_MS:
        raise InvalidFields(FieldFault(field, "must be in the years 1 to 9999 in UTC"))
    return milliseconds


def read_moment(text: str | None, field: str) -> int | None:
    """Return a time in the query in milliseconds; `InvalidFields` if it is not a time."""
    try:
        return to_milliseconds(msgspec.convert(text, datetime | None), field)
    except msgspec.ValidationError as error:
        fault = FieldFault(field, "must be a time (RFC 3339), like 2026-01-31T12:00:00Z")
        raise InvalidFields(fault) from error


def read_flag(text: str | None, field: str) -> bool | None:
    """Return a flag in the query; `InvalidFields` if it is not true or false."""
    if text is None:
        return None
    if text.lower() not in _FLAGS:
        raise InvalidFields(FieldFault(field, "must be true or false"))
    return _FLAGS[text.lower()]


def to_wire(milliseconds: int | None) -> str | None:
    """Return a time in milliseconds as the API writes it."""
    return None if milliseconds is None else clock.to_rfc3339(milliseconds)
