"""By which conditions the users of a filter are found."""

import pytest

from clarion.people.segments.filters import (
    EVERYONE,
    NO_ONE,
    All,
    AnyOf,
    Between,
    Bound,
    Condition,
    Filter,
    Not,
    OneOf,
)
from clarion.people.segments.plans import (
    choose_plan,
    has_choice,
    leave_out,
    list_positive,
    split_values,
)

A, B, C = (OneOf("tag", (name,)) for name in "abc")
AGE = Between("number.age", low=Bound(5.0, is_included=True))
COUNTS: dict[Condition, int] = {A: 5, B: 100, C: 1, AGE: 50}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (A, (A,)),
        (All((B, A)), (A,)),
        (All((B, AGE)), (AGE,)),
        (AnyOf((A, B)), (A, B)),
        (All((B, AnyOf((A, C)))), (A, C)),
        (All((A, AnyOf((B, C)))), (A,)),
        (AnyOf((All((A, B)), C)), (A, C)),
        (All((Not(C), B)), (B,)),
        (AnyOf((A, Not(B))), None),
        (Not(C), None),
        (EVERYONE, None),
        (NO_ONE, ()),
    ],
)
def test_the_rarest_conditions_find_the_users(of: Filter, expected: object) -> None:
    assert choose_plan(of, COUNTS).conditions == expected


def test_a_condition_is_better_than_reading_all_users() -> None:
    assert choose_plan(All((Not(A), B)), {}).conditions == (B,)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (A, False),
        (AnyOf((A, B)), False),
        (All((A, Not(B))), False),
        (All((A, B)), True),
        (AnyOf((All((A, B)), C)), True),
        (All((A, AnyOf((B, Not(C))))), False),
    ],
)
def test_conditions_are_counted_if_there_is_a_choice(of: Filter, *, expected: bool) -> None:
    assert has_choice(of) is expected


def test_negated_conditions_find_nobody() -> None:
    assert list_positive(All((A, Not(B), AnyOf((A, C))))) == (A, C)


@pytest.mark.parametrize(
    ("of", "conditions", "expected"),
    [
        (A, (A,), EVERYONE),
        (All((A, B)), (A,), B),
        (All((A, B, C)), (A,), All((B, C))),
        (AnyOf((A, B)), (A, B), EVERYONE),
        (All((AnyOf((A, B)), Not(C))), (A, B), Not(C)),
        (AnyOf((All((A, B)), C)), (A, C), AnyOf((All((A, B)), C))),
        (All((A, B)), None, All((A, B))),
        (NO_ONE, (), NO_ONE),
    ],
)
def test_what_users_were_found_by_is_not_checked_again(
    of: Filter, conditions: tuple[OneOf, ...] | None, expected: Filter
) -> None:
    assert leave_out(of, conditions) == expected


def test_values_are_looked_up_one_by_one_unless_they_are_many_or_a_range() -> None:
    assert split_values((OneOf("tag", ("a", "b")), C)) == (A, B, C)
    assert split_values((A, AGE)) is None
    assert split_values((OneOf("tag", tuple(map(str, range(51)))),)) is None
