"""How the units of a batch are run together: step by step, statement by statement.

Step n of every unit runs before step n + 1 of any, and equal statements run as one. A unit may
rely on its own earlier steps, never on those of another unit in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from clarion.store.statement import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.store.statement import Statement, Step, Unit


class Done(NamedTuple):
    """The unit is in; the rows each of its steps returned."""

    rows: tuple[tuple[Row, ...], ...]


class Refused(NamedTuple):
    """A guard returned nothing; the unit left no trace. `step` is the guard's position."""

    step: int


class Failed(NamedTuple):
    """A statement could not be run; the unit left no trace."""

    constraint: bool
    message: str


Outcome = Done | Refused | Failed


class Spoiled(Exception):
    """A unit failed after it had changed something: undo the batch and run its units apart."""


class Report(msgspec.Struct, array_like=True):
    """What became of a batch, by the position of the unit in it; what is not named is done."""

    rows: dict[int, dict[int, list[Row]]] = {}
    refused: dict[int, int] = {}
    failed: dict[int, tuple[bool, str]] = {}

    def is_out(self, unit: int) -> bool:
        """Whether the unit takes no further part in the batch."""
        return unit in self.refused or unit in self.failed

    def outcomes(self, units: Sequence[Unit]) -> list[Outcome]:
        """Return one outcome a unit."""
        if not self.refused and not self.failed:
            return [Done(self._rows_of(i, len(unit.steps))) for i, unit in enumerate(units)]
        return [self._outcome(i, len(unit.steps)) for i, unit in enumerate(units)]

    def _outcome(self, unit: int, steps: int) -> Outcome:
        if unit in self.failed:
            return Failed(*self.failed[unit])
        if unit in self.refused:
            return Refused(self.refused[unit])
        return Done(self._rows_of(unit, steps))

    def _rows_of(self, unit: int, steps: int) -> tuple[tuple[Row, ...], ...]:
        rows = self.rows.get(unit)
        if rows is None:
            return _nothing(steps)
        if steps == 1:  # as most have; what follows takes five times as long
            return (tuple(rows[0]),)
        return tuple(tuple(rows.get(step, ())) for step in range(steps))


@cache
def _nothing(steps: int) -> tuple[tuple[Row, ...], ...]:
    return ((),) * steps


class Group(msgspec.Struct, array_like=True):
    """One statement at one position, and the rows of each unit that has it there."""

    position: int
    text: str
    returns_rows: bool
    is_guard: bool
    members: list[tuple[int, Sequence[Row]]]


def arrange(units: Sequence[Unit]) -> list[Group]:
    """Return the groups of equal statements, position by position."""
    depth = max(len(unit.steps) for unit in units)
    groups: list[Group] = []
    for position in range(depth):
        steps = ((i, u.steps[position]) for i, u in enumerate(units) if len(u.steps) > position)
        groups.extend(_gather(position, steps))
    return groups


def _gather(position: int, steps: Iterable[tuple[int, Step]]) -> Iterable[Group]:
    groups: dict[tuple[Statement, bool], Group] = {}
    for unit, (statement, rows, is_guard) in steps:
        group = groups.get((statement, is_guard))
        if group is None:
            group = Group(position, statement.text, statement.returns_rows, is_guard, [])
            groups[statement, is_guard] = group
        group.members.append((unit, rows))
    return groups.values()
