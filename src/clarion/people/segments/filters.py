"""What a filter is: conditions on the terms of a user, joined by and, or and not.

A user has *terms*: `language`, `timezone`, `tag`, `created_at`, `last_seen_at`, and for each
attribute `text.NAME`, `number.NAME` or `flag.NAME`, by the type of its value. A user has several
values of `tag`, and at most one of every other term. Times are milliseconds, flags 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

Value = str | float

LANGUAGE, TIMEZONE, STATUS, TAG = "language", "timezone", "status", "tag"
CREATED_AT, LAST_SEEN_AT = "created_at", "last_seen_at"
TEXT, NUMBER, FLAG = "text.", "number.", "flag."
# Attributes with longer names are no terms.
NAME_LIMIT = 100
# Texts of a filter are at most this long. Of the texts of users one character more is indexed,
# which decides every comparison with a shorter text.
TEXT_LIMIT = 256
# Numbers from here on, which JSON can hold and a database may not, are no terms.
NUMBER_LIMIT = 1e300


class OneOf(msgspec.Struct, frozen=True):
    """The user has one of these values, which are sorted and all of one type."""

    term: str
    values: tuple[Value, ...]


class Bound(msgspec.Struct, frozen=True):
    """One end of a range."""

    value: Value
    is_included: bool


class Between(msgspec.Struct, frozen=True):
    """The user has a value in this range; None is no bound."""

    term: str
    low: Bound | None = None
    high: Bound | None = None


class Not(msgspec.Struct, frozen=True):
    """The opposite: also true if the user has no value at all."""

    of: Filter


class All(msgspec.Struct, frozen=True):
    """All parts are true; without parts, always."""

    parts: tuple[Filter, ...] = ()


class AnyOf(msgspec.Struct, frozen=True):
    """One of the parts is true; without parts, never."""

    parts: tuple[Filter, ...] = ()


Condition = OneOf | Between
Filter = Condition | Not | All | AnyOf
EVERYONE, NO_ONE = All(), AnyOf()


def list_conditions(of: Filter) -> Iterator[Condition]:
    """Yield the conditions of a filter in the order in which they are written."""
    match of:
        case OneOf() | Between():
            yield of
        case Not():
            yield from list_conditions(of.of)
        case All() | AnyOf():
            for part in of.parts:
                yield from list_conditions(part)


def holds(condition: Condition, value: Value) -> bool:
    """Whether a value of the condition's term matches it."""
    if isinstance(condition, OneOf):
        return value in condition.values
    low, high = condition.low, condition.high
    return (low is None or _is_after(value, low)) and (high is None or _is_before(value, high))


# The values of one term are all texts, in the order of their code points, or all numbers.


def _is_after(value: Value, low: Bound) -> bool:
    return value > low.value or (low.is_included and value == low.value)  # type: ignore[operator]


def _is_before(value: Value, high: Bound) -> bool:
    return value < high.value or (high.is_included and value == high.value)  # type: ignore[operator]
