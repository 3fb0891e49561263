"""A filter in the form in which it is looked up: shorter, with `Not` only before conditions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from clarion.people.model import UserStatus
from clarion.people.segments.filters import (
    EVERYONE,
    NO_ONE,
    STATUS,
    TAG,
    All,
    AnyOf,
    Between,
    Bound,
    Condition,
    Filter,
    Not,
    OneOf,
    holds,
)


def normalise(of: Filter, *, is_negated: bool = False) -> Filter:
    """Return a filter, or its opposite, in its normal form.

    Parts of the same kind are joined, duplicates and parts that decide nothing are left out, and
    conditions on the same term are one if they can be.
    """
    match of:
        case OneOf() | Between():
            return _negate(_simplify(of)) if is_negated else _simplify(of)
        case Not():
            return normalise(of.of, is_negated=not is_negated)
        case All() | AnyOf():
            parts = [normalise(part, is_negated=is_negated) for part in of.parts]
            # The opposite of "both" is "one of them not".
            return _join_all(parts) if isinstance(of, All) is not is_negated else _join_any(parts)


def _simplify(of: Condition) -> Filter:
    # Only active users are in an audience.
    if of.term == STATUS and isinstance(of, OneOf):
        return EVERYONE if UserStatus.ACTIVE.value in of.values else NO_ONE
    return of


def _negate(of: Filter) -> Filter:
    if of == EVERYONE:
        return NO_ONE
    return EVERYONE if of == NO_ONE else Not(of)


def _join_all(parts: Iterable[Filter]) -> Filter:
    joined: dict[Hashable, Filter] = {}
    for part in _flatten(parts, All):
        key = _key_in_all(part)
        joined[key] = _both(joined[key], part) if key in joined else part
    found = tuple(joined.values())
    if NO_ONE in found:
        return NO_ONE
    return found[0] if len(found) == 1 else All(found)


def _join_any(parts: Iterable[Filter]) -> Filter:
    joined: dict[Hashable, Filter] = {}
    for part in _flatten(parts, AnyOf):
        key = part.term if isinstance(part, OneOf) else part
        joined[key] = _unite(joined[key], part) if key in joined else part
    found = tuple(joined.values())
    if EVERYONE in found:
        return EVERYONE
    return found[0] if len(found) == 1 else AnyOf(found)


def _flatten(parts: Iterable[Filter], kind: type[All | AnyOf]) -> Iterator[Filter]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _key_in_all(part: Filter) -> Hashable:
    """Return what parts have in common that can be one if all of them must be true."""
    match part:
        case OneOf(term=term) | Between(term=term) if term != TAG:
            return term
        case Not(of=OneOf(term=term)):
            return "not", term
        case _:
            return part


def _both(first: Filter, second: Filter) -> Filter:
    match first, second:
        case Not(), Not():
            return Not(_unite(first.of, second.of))
        case OneOf() | Between(), OneOf() | Between():
            return _intersect(first, second)
        case _:  # equal, or nobody matches the first
            return first


def _unite(first: Filter, second: Filter) -> Filter:
    if isinstance(first, OneOf) and isinstance(second, OneOf):
        values = {*first.values, *second.values}
        return OneOf(first.term, tuple(sorted(values)))
    return first


def _intersect(first: Condition, second: Condition) -> Filter:
    if isinstance(first, Between) and isinstance(second, Between):
        low = max(_known(first.low, second.low), key=_low_order, default=None)
        high = min(_known(first.high, second.high), key=_high_order, default=None)
        return NO_ONE if _is_empty(low, high) else Between(first.term, low, high)
    listed, other = (first, second) if isinstance(first, OneOf) else (second, first)
    assert isinstance(listed, OneOf)  # noqa: S101 - not both are ranges
    values = tuple(value for value in listed.values if holds(other, value))
    return OneOf(listed.term, values) if values else NO_ONE


def _known(*bounds: Bound | None) -> list[Bound]:
    return [bound for bound in bounds if bound is not None]


def _low_order(bound: Bound) -> tuple[object, bool]:
    return bound.value, not bound.is_included


def _high_order(bound: Bound) -> tuple[object, bool]:
    return bound.value, bound.is_included


def _is_empty(low: Bound | None, high: Bound | None) -> bool:
    if low is None or high is None:
        return False
    if low.value == high.value:
        return not (low.is_included and high.is_included)
    return low.value > high.value  # type: ignore[operator]
