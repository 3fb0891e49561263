"""How the units of a batch are run together: step by step, statement by statement.

Step n of every unit runs before step n + 1 of any, and equal statements run as one. A unit may
rely on its own earlier steps, but not on those of another unit in the batch. Units that end what
others add come after these, step by step as well.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from clarion.store.statement import Row, Statement, Step, Unit


class Done(NamedTuple):
    """The unit is committed; the rows that each of its steps returned."""

    rows: tuple[tuple[Row, ...], ...]


class Refused(NamedTuple):
    """A guard returned no row, so the unit changed nothing. `step` is the guard's position."""

    step: int


class Failed(NamedTuple):
    """A statement failed, so the unit changed nothing."""

    constraint: bool
    message: str


Outcome = Done | Refused | Failed


class Spoiled(Exception):
    """A unit failed after it had changed something: roll back and run each unit on its own."""


class Report(msgspec.Struct, array_like=True):
    """The outcome of a batch by the position of the unit; a unit that is not named is done."""

    rows: dict[int, dict[int, list[Row]]] = {}
    refused: dict[int, int] = {}
    failed: dict[int, tuple[bool, str]] = {}

    def is_out(self, unit: int) -> bool:
        """Whether the rest of the unit must not be run."""
        return unit in self.refused or unit in self.failed

    def refuse_without_rows(
        self, group: Group, members: Members, changed: Container[int] = ()
    ) -> None:
        """Refuse the units for which a guard has returned no row, and changed none."""
        for unit, _ in members:
            if unit in changed or unit in self.failed:
                continue
            if group.position in self.rows.get(unit, ()):
                continue
            if group.position:
                raise Spoiled(group.position)
            self.refused[unit] = 0

    def undo(self, unit: int, spoiled: Spoiled, describe: Describe) -> None:
        """Record why a unit that was run on its own was rolled back."""
        self.rows.pop(unit, None)
        if spoiled.__cause__ is None:
            self.refused[unit] = spoiled.args[0]
        else:
            self.failed[unit] = describe(spoiled.__cause__)

    def outcomes(self, units: Sequence[Unit]) -> list[Outcome]:
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
        if steps == 1:  # the usual case; the line below takes five times as long
            return (tuple(rows[0]),)
        return tuple(tuple(rows.get(step, ())) for step in range(steps))


@cache
def _nothing(steps: int) -> tuple[tuple[Row, ...], ...]:
    return ((),) * steps


class Group(msgspec.Struct, array_like=True):
    """A statement at one position, and the values of each unit that has it there."""

    position: int
    text: str
    returns_rows: bool
    is_guard: bool
    members: list[tuple[int, Sequence[Row]]]


# The position of each unit in the batch, and the values it runs the statement with.
Members = Sequence[tuple[int, Sequence[Row]]]
# Returns whether a constraint refused the unit, and the name of the error without any values.
Describe = Callable[[BaseException], tuple[bool, str]]


def split(groups: Sequence[Group]) -> dict[int, list[Group]]:
    """Return the groups of each unit on its own."""
    units: dict[int, list[Group]] = {}
    for group in groups:
        for member in group.members:
            alone = Group(group.position, group.text, group.returns_rows, group.is_guard, [member])
            units.setdefault(member[0], []).append(alone)
    return units


def arrange(units: Sequence[Unit]) -> list[Group]:
    """Return the groups of equal statements, position by position."""
    numbered = list(enumerate(units))
    last = [each for each in numbered if each[1].is_last]
    if not last:
        return _arrange(numbered)
    return _arrange([each for each in numbered if not each[1].is_last]) + _arrange(last)


def _arrange(units: Sequence[tuple[int, Unit]]) -> list[Group]:
    depth = max((len(unit.steps) for _, unit in units), default=0)
    groups: list[Group] = []
    for position in range(depth):
        steps = ((i, unit.steps[position]) for i, unit in units if len(unit.steps) > position)
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
