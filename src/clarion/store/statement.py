"""Named statements, steps that run them, and units of steps that are committed together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

_encode = msgspec.json.Encoder().encode

Value = str | int | float | bytes | None
# Rows are as typed as the schema: a `Record` knows the types.
Row = tuple[Any, ...]

# A parameter is `:name`; `::type` is a cast and stays.
_PARAMETER = re.compile(r"(?<!:):([a-z][a-z0-9_]*)")


class Step(NamedTuple):
    """One statement with the rows of values to run it with."""

    statement: Statement
    rows: Sequence[Row]
    # A guard that returns and changes no row rolls its unit back. As the first step, that costs
    # nothing.
    is_guard: bool = False


class Unit(NamedTuple):
    """Steps that are committed together or not at all.

    `key` is the id of what the unit changes (a user, a device). Batches are written in key order,
    so that two nodes that write the same rows wait for each other instead of deadlocking. `owner`
    is the id of the app whose request it is part of: apps share the writer fairly. `is_aside` marks
    writes of a request apart from its change, such as counts of attempts: the entry of the audit
    log is not added to it. `is_last` marks a unit that ends rows which other units of its batch may
    add: it runs after them.
    """

    key: str
    steps: tuple[Step, ...]
    owner: str | None = None
    is_aside: bool = False
    is_last: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A named statement: its text for both engines, and the order of its parameters."""

    name: str
    text: str
    names: tuple[str, ...]
    returns_rows: bool
    _pick: Callable[[Mapping[str, Value]], Row] = field(repr=False)

    def bind(self, **values: Value) -> Row:
        """Return named values in the order of the parameters; `TypeError` if one is missing."""
        return self._order(values)

    def _order(self, values: Mapping[str, Value]) -> Row:
        if len(values) != len(self.names):
            unknown = sorted(set(values) - set(self.names))
            missing = sorted(set(self.names) - set(values))
            raise TypeError(f"{self.name}: missing {missing}, unknown {unknown}")
        return self._pick(values)

    def step(self, **values: Value) -> Step:
        """Return a step that runs this statement once."""
        return Step(self, (self._order(values),))

    def guard(self, **values: Value) -> Step:
        """Return a step that runs once and rolls its unit back if it finds no row."""
        if not self.returns_rows:
            raise TypeError(f"{self.name}: a guard needs RETURNING")
        return Step(self, (self._order(values),), is_guard=True)

    def many(self, rows: Sequence[Row]) -> Step:
        """Return a step that runs this statement for each row; rows are made by `bind`."""
        return Step(self, rows)


def keys_of(keys: Iterable[str]) -> str:
    """Return a list of keys as one parameter: the keys of a JSON object.

    `x IN (SELECT key FROM json_each(:keys))` is the one form that both engines support.
    """
    return _encode(dict.fromkeys(keys, 0)).decode()


def statement(name: str, sql: str) -> Statement:
    """Compile a statement with `:named` parameters.

    Text inside `/*postgres … */` is a comment for SQLite; PostgreSQL runs it. A guard whose rows
    are not read can end with `/*postgres RETURNING … */`: SQLite counts the changed rows instead,
    which is faster.

    Both engines read `$1`, `$2`, …: PostgreSQL by number; SQLite reads them as names and numbers
    them in the order in which they first appear, which is their order here.
    """
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = " ".join(_PARAMETER.sub(number, sql).split())
    returns_rows = bool(re.search(r"\bRETURNING\b|^SELECT\b|^WITH\b", text, re.IGNORECASE))
    return Statement(name, text, tuple(names), returns_rows, _picker(names))


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Value]], Row]:
    if not names:
        return lambda _values: ()
    if len(names) == 1:
        only = names[0]
        return lambda values: (values[only],)
    return itemgetter(*names)
