"""Which conditions of a filter the users are found by; the others are checked for each of them.

Every user of the filter matches one of the conditions found here. The rarest ones are chosen, so
that few users are found who do not match the whole filter.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clarion.people.segments.filters import (
    All,
    AnyOf,
    Between,
    Condition,
    Filter,
    Not,
    OneOf,
)

LOOKUPS_LIMIT = 50
# More than any app has.
_ALL_USERS = 1 << 60


class SearchPlan(msgspec.Struct, frozen=True):
    """The conditions to look up (None: all users), and how many users match them together."""

    conditions: tuple[Condition, ...] | None
    cost: int


_EVERYONE = SearchPlan(None, _ALL_USERS)


def choose_plan(of: Filter, counts: Mapping[Condition, int]) -> SearchPlan:
    """Return the cheapest plan for a filter in its normal form.

    A condition that is not counted costs as much as all users.
    """
    match of:
        case OneOf() | Between():
            return SearchPlan((of,), counts.get(of, _ALL_USERS - 1))
        case Not():
            return _EVERYONE
        case All():
            plans = (choose_plan(part, counts) for part in of.parts)
            return min(plans, key=lambda plan: plan.cost, default=_EVERYONE)
        case AnyOf():
            return _add([choose_plan(part, counts) for part in of.parts])


def _add(plans: list[SearchPlan]) -> SearchPlan:
    conditions: dict[Condition, None] = {}
    for plan in plans:
        if plan.conditions is None:
            return _EVERYONE
        conditions |= dict.fromkeys(plan.conditions)
    return SearchPlan(tuple(conditions), min(sum(plan.cost for plan in plans), _ALL_USERS - 1))


def list_positive(of: Filter) -> tuple[Condition, ...]:
    """Return the conditions of a normalised filter that can find users."""
    match of:
        case OneOf() | Between():
            return (of,)
        case Not():
            return ()
        case All() | AnyOf():
            return tuple(dict.fromkeys(each for part in of.parts for each in list_positive(part)))


def has_choice(of: Filter) -> bool:
    """Whether there is more than one plan, so that counting can pay."""
    match of:
        case All():
            usable = [part for part in of.parts if choose_plan(part, {}).conditions is not None]
            return len(usable) > 1 or any(map(has_choice, usable))
        case AnyOf():
            return any(map(has_choice, of.parts))
        case _:
            return False


def leave_out(of: Filter, conditions: tuple[Condition, ...] | None) -> Filter:
    """Return the rest of a filter to check for users found by these conditions."""
    if not conditions:
        return of
    found = conditions[0] if len(conditions) == 1 else AnyOf(conditions)
    parts = of.parts if isinstance(of, All) else (of,)
    rest = tuple(part for part in parts if part != found)
    return rest[0] if len(rest) == 1 else All(rest)


def split_values(conditions: tuple[Condition, ...]) -> tuple[Condition, ...] | None:
    """Return a condition for each value; None if there are too many, or a range is among them.

    An index has the users of one value in the order of their ids, so a page reads no more users
    than it shows. A range has its users in the order of the values.
    """
    found: list[Condition] = []
    for each in conditions:
        if isinstance(each, Between):
            return None
        found += [OneOf(each.term, (value,)) for value in each.values]
    return tuple(found) if len(found) <= LOOKUPS_LIMIT else None
