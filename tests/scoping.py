"""Reads statements, to find tables of apps that are used without the app.

A table is used within the app if its `app_id` is compared for equality with a parameter, or with
that of a table that is; if a row is inserted with an `app_id`; if a conflict of keys is one within
an app. The comparison must be a condition of its own, joined by AND: an OR proves nothing.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Union

_TOKEN = re.compile(r"'(?:[^']|'')*'|[A-Za-z_][\w.]*|\$\d+|<=|>=|<>|!=|\|\||::|\d+|[^\s\w]")
_ENDS = {"GROUP", "ORDER", "LIMIT", "RETURNING", "HAVING", "OFFSET", "FOR", "WINDOW"}
_JOINS = {"JOIN", "LEFT", "INNER", "CROSS", "ON", "USING", "WHERE", "SET", "VALUES"}
_NO_ALIAS = _ENDS | _JOINS | {"AS", "UNION", "DO", "SELECT", "DEFAULT"}
# A word, or what is in parentheses.
Token = Union[str, "tuple[Token, ...]"]
Tokens = Sequence[Token]


class Use(NamedTuple):
    """A table, and the name that it has in its part of the statement."""

    table: str
    alias: str


def find_unscoped(text: str, owned: set[str], columns: Collection[str] = ("app_id",)) -> list[str]:
    """Return the tables of apps that a statement uses, but not within an app.

    Other columns can be given that prove it as well, because their values are unique.
    """
    return [table for query in _queries(_nest(text)) for table in _check(query, owned, columns)]


def _nest(text: str) -> Tokens:
    """Return the tokens of a statement; what is in parentheses is a list in the list."""
    stack: list[list[Token]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            inner = stack.pop()
            stack[-1].append(tuple(inner))
        else:
            stack[-1].append(token.upper() if token.upper() in _WORDS else token)
    (tokens,) = stack
    return tokens


_WORDS = _NO_ALIAS | {"FROM", "INTO", "UPDATE", "DELETE", "INSERT", "CONFLICT", "AND", "OR", "IN"}


def _queries(tokens: Tokens) -> Iterator[Tokens]:
    """Yield each query of a statement, the inner ones too; those of a UNION apart."""
    query: list[Token] = []
    for token in tokens:
        if isinstance(token, tuple):
            yield from _queries(token)
        if token == "UNION" or (token == "SELECT" and "INSERT" in query):
            yield query
            query = []
        query.append(token)
    yield query


def _check(query: Tokens, owned: set[str], columns: Collection[str]) -> Iterator[str]:
    yield from _check_insert(query, owned, columns)
    uses = [each for each in _find_uses(query) if each.table in owned]
    scoped = _find_scoped(uses, [*_conditions(query)], columns)
    yield from (use.table for use in uses if use.alias not in scoped)


def _check_insert(query: Tokens, owned: set[str], columns: Collection[str]) -> Iterator[str]:
    into = next((after for before, after in pairwise(query) if before == "INTO"), None)
    if into not in owned:
        return
    if not _has_any(columns, _first_list(query)):
        yield str(into)
    target = next((after for before, after in pairwise(query) if before == "CONFLICT"), None)
    # Otherwise the row of another app with the same key would be changed.
    if "UPDATE" in query and isinstance(target, tuple) and not _has_any(columns, target):
        yield "ON CONFLICT"


def _has_any(columns: Collection[str], names: Tokens) -> bool:
    return any(each in names for each in columns)


def _first_list(query: Tokens) -> Tokens:
    return next((each for each in query if isinstance(each, tuple)), ())


def _find_uses(query: Tokens) -> Iterator[Use]:
    """Yield the tables that a query reads, updates or deletes from."""
    is_source = False
    for number, token in enumerate(query):
        before = query[number - 1] if number else ""
        if before in ("FROM", "JOIN") or (before == "UPDATE" and token != "SET"):
            is_source = True
        elif not (is_source and before == ","):
            continue
        if isinstance(token, str) and token not in _NO_ALIAS:
            yield Use(token, _alias_of(query, number))
        if before == "FROM" and token in _ENDS:
            is_source = False


def _alias_of(query: Tokens, number: int) -> str:
    rest = [each for each in query[number + 1 : number + 3] if each != "AS"]
    if rest and isinstance(rest[0], str) and rest[0].isidentifier() and rest[0] not in _NO_ALIAS:
        return rest[0]
    return str(query[number])


def _conditions(query: Tokens) -> Iterator[Tokens]:
    """Yield the conditions that all must hold: of WHERE and ON, at the outermost level."""
    clause: list[Token] | None = None
    clauses: list[list[Token]] = []
    for number, token in enumerate(query):
        is_on = token == "ON" and [*query[number + 1 : number + 2]] != ["CONFLICT"]
        if token == "WHERE" or is_on:
            clause = []
            clauses.append(clause)
        elif token in _ENDS or token in _JOINS:
            clause = None
        elif clause is not None:
            clause.append(token)
    for each in clauses:
        if "OR" not in each:
            yield from _split(each)


def _split(clause: Tokens) -> Iterator[Tokens]:
    part: list[Token] = []
    for token in clause:
        if token == "AND":
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _find_scoped(uses: list[Use], conditions: list[Tokens], columns: Collection[str]) -> set[str]:
    """Return the aliases whose app is given, directly or by that of another one."""
    aliases = {use.alias for use in uses}
    scoped: set[str] = set()
    while True:
        found = {
            alias
            for alias in aliases - scoped
            for column in columns
            if any(_gives(column, each, alias, scoped, aliases) for each in conditions)
        }
        if not found:
            return scoped
        scoped |= found


def _gives(column: str, condition: Tokens, alias: str, scoped: set[str], aliases: set[str]) -> bool:
    """Whether a condition gives the column of a table, by its name alone or with the alias."""
    own = (column, f"{alias}.{column}")
    match condition:
        case [tuple(names), "=" | "IN", tuple()]:  # (app_id, id) = ($1, $2)
            return any(each in names for each in own)
        case [left, "IN", tuple()]:
            return left in own
        case [left, "=", right]:
            return any(
                name in own and _is_known(other, alias, scoped, aliases)
                for name, other in ((left, right), (right, left))
            )
        case _:
            return False


def _is_known(value: Token, alias: str, scoped: set[str], aliases: set[str]) -> bool:
    """Whether a value is a parameter, or of a table that is used within the app."""
    if isinstance(value, tuple) or value.startswith("$"):
        return True
    table, dot, _ = value.partition(".")
    if not dot or table == alias:
        return False
    return table in scoped or table not in aliases  # of the query around this one
