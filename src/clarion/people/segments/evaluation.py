"""Whether one user is in a segment: the meaning of a filter, which every store must agree with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from clarion.people.model import User, UserStatus
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
    All,
    AnyOf,
    Between,
    Filter,
    Not,
    OneOf,
    Value,
    holds,
)

Terms = Mapping[str, frozenset[Value]]
_NOTHING: frozenset[Value] = frozenset()


def is_member(of: Filter, user: User) -> bool:
    """Whether a filter selects a user; inactive and deleted users are in no segment."""
    is_audience = user.status is UserStatus.ACTIVE and user.deleted_at is None
    return is_audience and _is_true(of, read_terms(user))


def read_terms(user: User) -> Terms:
    """Return what a filter can compare of a user: each term with its values."""
    terms: dict[str, frozenset[Value]] = {
        LANGUAGE: frozenset({user.language}),
        TIMEZONE: frozenset({user.timezone}),
        STATUS: frozenset({user.status.value}),
        TAG: frozenset(user.tags),
        CREATED_AT: frozenset({float(user.created_at)}),
    }
    if user.last_seen_at is not None:
        terms[LAST_SEEN_AT] = frozenset({float(user.last_seen_at)})
    return terms | {term: frozenset({value}) for term, value in _read_attributes(user.attributes)}


def _read_attributes(attributes: Mapping[str, object]) -> Iterator[tuple[str, Value]]:
    for name, value in _replace_zeros(attributes).items():
        if len(name) > NAME_LIMIT:
            continue
        if isinstance(value, bool):
            yield FLAG + name, float(value)
        elif isinstance(value, str):
            yield TEXT + name, value[: TEXT_LIMIT + 1]
        elif isinstance(value, int | float) and abs(value) < NUMBER_LIMIT:
            yield NUMBER + name, float(value)


def _replace_zeros(attributes: Mapping[str, object]) -> Mapping[str, object]:
    # PostgreSQL cannot hold zero characters outside of JSON.
    encoded = msgspec.json.encode(attributes)
    if rb"\u0000" not in encoded:
        return attributes
    replaced = encoded.replace(rb"\u0000", rb"\ufffd")
    return msgspec.json.decode(replaced, type=dict[str, object])


def _is_true(of: Filter, terms: Terms) -> bool:
    match of:
        case OneOf() | Between():
            return any(holds(of, value) for value in terms.get(of.term, _NOTHING))
        case Not():
            return not _is_true(of.of, terms)
        case All():
            return all(_is_true(part, terms) for part in of.parts)
        case AnyOf():
            return any(_is_true(part, terms) for part in of.parts)
