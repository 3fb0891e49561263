"""Filters → SQL. All that an app has written is a parameter; the text holds our own words only.

Users are found by the index of a condition; then each is checked by a subquery for exactly this
user. As subqueries that return a value, they are never joins: a planner would read all users who
match a frequent condition, to join them with the few that were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from clarion.people.segments.filters import (
    CREATED_AT,
    EVERYONE,
    LANGUAGE,
    LAST_SEEN_AT,
    TAG,
    TEXT,
    TIMEZONE,
    All,
    AnyOf,
    Between,
    Bound,
    Condition,
    Filter,
    Not,
    OneOf,
    list_conditions,
)
from clarion.people.segments.filters import Value as TermValue
from clarion.people.segments.plans import split_values
from clarion.store.statement import Statement, Value, statement

_COLUMNS = (LANGUAGE, TIMEZONE, CREATED_AT, LAST_SEEN_AT)
_TIMES = (CREATED_AT, LAST_SEEN_AT)
_COUNTED_APART = 8
_LIVING = "app_id = :app_id AND deleted_at IS NULL"
_ACTIVE = "status = 'active'"


class Parameters:
    """The parameters of a statement that is being written, which get their names from here."""

    def __init__(self, **values: Value) -> None:
        self.values = values

    def add(self, value: Value) -> str:
        """Return the placeholder of a value."""
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f":{name}"


def count_each(given: Parameters, conditions: Sequence[Condition]) -> Statement:
    """Return how many users match each condition; `cap` stands for that many or more.

    With several values, each is counted separately, so the sum may be higher.
    """
    counts = ", ".join(_count(given, each) for each in conditions)
    return statement("count_users_of_conditions", f"SELECT {counts}")


def count_users(given: Parameters, of: Filter, conditions: Sequence[Condition] | None) -> Statement:
    """Return how many users a filter selects."""
    if of == EVERYONE and conditions is None:
        return statement("count_active_users", f"SELECT COUNT(*) FROM ({_find_all()}) AS found")
    found = " UNION ".join(_look_up(given, conditions))
    text = f"SELECT COUNT(*) FROM ({found}) AS found WHERE {_is_counted(given, of)}"
    return statement("count_users_of_filter", text)


def check_user(given: Parameters, of: Filter) -> Statement:
    """Return 1 if a filter selects the user `user_id`, or else NULL."""
    one = "SELECT CAST(:user_id AS TEXT) AS user_id"
    text = f"SELECT {_is_member(given, of)} FROM ({one}) AS found"
    return statement("check_user_of_filter", text)


def list_users(given: Parameters, of: Filter, conditions: Sequence[Condition] | None) -> Statement:
    """Return the users after `after`, at most `limit`, that match one of the conditions.

    Each with 1 if the filter selects it, or else NULL. Without conditions these are all users.
    """
    page = "WHERE user_id > :after ORDER BY user_id LIMIT :limit"
    lookups = _look_up(given, conditions)
    pages = [f"SELECT * FROM (SELECT * FROM ({each}) AS a {page}) AS b" for each in lookups]
    # UNION would merge them one by one, which takes the square of their number.
    found = " UNION ALL ".join(pages)
    text = f"""SELECT found.user_id, {_is_member(given, of)} FROM
    (SELECT DISTINCT user_id FROM ({found}) AS c ORDER BY user_id LIMIT :limit) AS found
    ORDER BY found.user_id"""
    return statement("list_users_of_filter", text)


def _count(given: Parameters, condition: Condition) -> str:
    """Return the number of users who match a condition, read in the order of its index.

    A planner that knows how frequent a value is would otherwise read the table instead.
    """
    number = len(condition.values) if isinstance(condition, OneOf) else 1
    if 1 < number <= _COUNTED_APART:
        return " + ".join(_count(given, each) for each in split_values((condition,)) or ())
    order = "" if number > 1 else _sort(condition)
    return f"(SELECT COUNT(*) FROM ({_find(given, condition)} {order} LIMIT :cap) AS counted)"


def _find_all() -> str:
    return f"SELECT id AS user_id FROM users WHERE {_LIVING} AND {_ACTIVE}"


def _look_up(given: Parameters, conditions: Sequence[Condition] | None) -> Iterator[str]:
    """Yield lookups, each of which finds a user once."""
    if conditions is None:
        yield _find_all()
        return
    for each in conditions:
        found = _find(given, each)
        is_repeated = each.term == TAG and isinstance(each, OneOf) and len(each.values) > 1
        yield f"SELECT DISTINCT user_id FROM ({found}) AS tagged" if is_repeated else found


def _find(given: Parameters, condition: Condition) -> str:
    """Return the lookup of a condition by its index. Users may be inactive, or deleted."""
    test = _compare(given, condition)
    if condition.term in _COLUMNS:
        return f"SELECT id AS user_id FROM users WHERE {_LIVING} AND {test}"
    table = "user_tags" if condition.term == TAG else "user_attributes"
    return f"SELECT user_id FROM {table} WHERE app_id = :app_id AND {test}"


def _sort(condition: Condition) -> str:
    """Return the order of the index of a condition."""
    term = condition.term
    if term in _COLUMNS:
        return f"ORDER BY {term}, id"
    return f"ORDER BY {'tag' if term == TAG else 'term, value, number'}, user_id"


def _is_member(given: Parameters, of: Filter) -> str:
    """Return the subquery that is 1 if the user that was found is in the segment, or else NULL."""
    return f"""(SELECT 1 FROM users AS u WHERE u.app_id = :app_id AND u.id = found.user_id
    AND u.{_ACTIVE} AND u.deleted_at IS NULL AND {_test(given, of)} LIMIT 1)"""


def _is_counted(given: Parameters, of: Filter) -> str:
    """Return the condition that the user that was found is in the segment.

    Users are not read if the filter has no condition on their columns: inactive users are few, and
    reading a thousand of a million users takes twice as long as a thousand of ten thousand.
    """
    if any(each.term in _COLUMNS for each in list_conditions(of)):
        return f"{_is_member(given, of)} IS NOT NULL"
    return f"""(SELECT 1 FROM inactive_users AS i WHERE i.app_id = :app_id
    AND i.user_id = found.user_id LIMIT 1) IS NULL AND {_test(given, of, "found.user_id")}"""


def _test(given: Parameters, of: Filter, user: str = "u.id") -> str:
    """Return the condition on a row `u` of users. It is never NULL, so that NOT is its opposite."""
    match of:
        case Not():
            return f"NOT {_test(given, of.of, user)}"
        case All():
            return _join(" AND ", "1 = 1", (_test(given, part, user) for part in of.parts))
        case AnyOf():
            return _join(" OR ", "1 = 0", (_test(given, part, user) for part in of.parts))
        case OneOf() | Between() if of.term in _COLUMNS:
            return f"(u.{of.term} IS NOT NULL AND {_compare(given, of, 'u.')})"
        case OneOf() | Between():
            table = "user_tags" if of.term == TAG else "user_attributes"
            return f"""((SELECT 1 FROM {table} AS t WHERE t.app_id = :app_id AND t.user_id = {user}
            AND {_compare(given, of, "t.")} LIMIT 1) IS NOT NULL)"""


def _join(word: str, empty: str, parts: Iterable[str]) -> str:
    return f"({word.join(parts) or empty})"


def _compare(given: Parameters, condition: Condition, row: str = "") -> str:
    """Return the comparison of a condition with the columns that hold its term."""
    term = condition.term
    if term in _COLUMNS or term == TAG:
        return _compare_column(given, condition, f"{row}{term}")
    test = f"{row}term = {given.add(term)}"
    if term.startswith(TEXT):
        compared = f"{test} AND {_compare_column(given, condition, f'{row}value')}"
        # The index has the users of a value in their order only if the number is given, too.
        return f"{compared} AND {row}number = 0" if isinstance(condition, OneOf) else compared
    return f"{test} AND {row}value = '' AND {_compare_column(given, condition, f'{row}number')}"


def _compare_column(given: Parameters, condition: Condition, column: str) -> str:
    def add(value: TermValue) -> str:
        return given.add(int(value) if condition.term in _TIMES else value)

    if isinstance(condition, OneOf):
        if len(condition.values) == 1:
            return f"{column} = {add(condition.values[0])}"
        return f"{column} IN ({', '.join(map(add, condition.values))})"
    low, high = condition.low, condition.high
    bounds = [
        f"{column} {sign(bound)} {add(bound.value)}"
        for bound, sign in ((low, _above), (high, _below))
        if bound is not None
    ]
    return " AND ".join(bounds)


def _above(bound: Bound) -> str:
    return ">=" if bound.is_included else ">"


def _below(bound: Bound) -> str:
    return "<=" if bound.is_included else "<"
