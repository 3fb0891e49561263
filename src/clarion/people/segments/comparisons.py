"""Which fields a filter may compare, with which operators and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from clarion.clock import to_milliseconds
from clarion.fields import check_language, check_timezone
from clarion.people.fields import check_status, check_tags
from clarion.people.segments.filters import (
    CREATED_AT,
    FLAG,
    LANGUAGE,
    LAST_SEEN_AT,
    NAME_LIMIT,
    NUMBER,
    NUMBER_LIMIT,
    STATUS,
    TAG,
    TEXT,
    TEXT_LIMIT,
    TIMEZONE,
    AnyOf,
    Between,
    Bound,
    Filter,
    Not,
    OneOf,
    Value,
)
from clarion.people.segments.tokens import unquote

ATTRIBUTE = "attributes."
FIELDS = (LANGUAGE, TIMEZONE, STATUS, TAG, CREATED_AT, LAST_SEEN_AT, f"{ATTRIBUTE}NAME")
Literal = str | float | bool
IN, NOT_IN = "in", "not in"
_ORDERED = ("<", "<=", ">", ">=")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def check_field(word: str) -> str:
    """Return the name of a field; `ValueError` if it does not exist."""
    if word in FIELDS[:-1]:
        return word
    if not word.startswith(ATTRIBUTE):
        raise ValueError(f"there is no field {word}: use {', '.join(FIELDS)}")
    name = word.removeprefix(ATTRIBUTE)
    name = unquote(name) if name.startswith("'") else name
    if not 0 < len(name) <= NAME_LIMIT:
        raise ValueError(f"the name of an attribute has 1 to {NAME_LIMIT} characters")
    return ATTRIBUTE + name


def make_comparison(field: str, operator: str, literals: Sequence[Literal]) -> Filter:
    """Return the filter of a comparison; `ValueError` if the field cannot be compared so."""
    pairs = [_convert(field, literal) for literal in literals]
    if operator in _ORDERED:
        return _make_range(field, operator, *pairs[0])
    by_term: dict[str, set[Value]] = {}
    for term, value in pairs:
        by_term.setdefault(term, set()).add(value)
    # An attribute may be compared with values of several types.
    parts = [OneOf(term, tuple(sorted(values))) for term, values in by_term.items()]
    found = parts[0] if len(parts) == 1 else AnyOf(tuple(parts))
    return Not(found) if operator in ("!=", NOT_IN) else found


def _make_range(field: str, operator: str, term: str, value: Value) -> Between:
    if field in _CHOSEN or term.startswith(FLAG):
        raise ValueError(f"{field} cannot be compared with {operator} here: use =, != or in")
    bound = Bound(value, operator.endswith("="))
    return Between(term, low=bound) if operator[0] == ">" else Between(term, high=bound)


def _convert(field: str, literal: Literal) -> tuple[str, Value]:
    """Return the term that a literal is compared with, and its value there."""
    if field.startswith(ATTRIBUTE):
        return _convert_attribute(field.removeprefix(ATTRIBUTE), literal)
    if not isinstance(literal, str):
        reason = f"{field} is compared with a text in single quotes"
        raise ValueError(reason)  # noqa: TRY004 - a fault of the filter
    check = _CHOSEN.get(field, _check_time)
    try:
        return field, check(literal)
    except ValueError as error:
        raise ValueError(f"{field} {error}") from error


def _convert_attribute(name: str, literal: Literal) -> tuple[str, Value]:
    if isinstance(literal, bool):
        return FLAG + name, float(literal)
    if isinstance(literal, float):
        return NUMBER + name, check_number(literal)
    return TEXT + name, literal


def check_number(number: float) -> float:
    if not abs(number) < NUMBER_LIMIT:
        raise ValueError(f"a number must be less than {NUMBER_LIMIT:g}")
    return number + 0.0  # there is no -0


def check_text(text: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise ValueError(f"a text has at most {TEXT_LIMIT} characters")
    return text


def _check_time(text: str) -> float:
    """Return a time in milliseconds; a date is its first moment in UTC."""
    full = f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text
    try:
        moment = msgspec.convert(full, datetime)
    except msgspec.ValidationError as error:
        raise ValueError(
            "must be a date or time, like 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise ValueError("must have an offset, like 2026-01-31T12:00:00Z")
    return float(to_milliseconds(moment))


def _check_tag(text: str) -> str:
    try:
        return check_tags([text])[0]
    except ValueError as error:
        raise ValueError("has 1 to 64 characters") from error


# The fields whose values have no order.
_CHOSEN: dict[str, Callable[[str], str]] = {
    LANGUAGE: check_language,
    TIMEZONE: check_timezone,
    STATUS: lambda text: check_status(text).value,
    TAG: _check_tag,
}
