"""A step that joins the next unit that a task writes, in any part of the program.

The audit log uses it: a change and its entry are durable together, and what makes the change need
not know of the entry.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Protocol

from clarion.store.group_commit import GroupCommit, Rows
from clarion.store.statement import Step, Unit


class Companion(Protocol):
    """Something that has a step to be written with the next unit of its task."""

    def take(self) -> Step | None:
        """Return the step if it is still to be written; it is then in progress."""

    def settle(self, *, is_written: bool) -> None:
        """Record whether the unit with the step was committed."""


companion: ContextVar[Companion | None] = ContextVar("companion", default=None)


def write_accompanied(commit: GroupCommit, unit: Unit) -> Awaitable[Rows | None]:
    """Write a unit, with the step of the task's companion if there is one."""
    joined = None if unit.is_aside else companion.get()
    step = joined.take() if joined else None
    if joined is None or step is None:
        return commit.write(unit)
    return _write_both(commit, unit, step, joined)


async def _write_both(
    commit: GroupCommit, unit: Unit, step: Step, joined: Companion
) -> Rows | None:
    is_written = False
    try:
        rows = await commit.write(unit._replace(steps=(*unit.steps, step)))
        is_written = rows is not None
    finally:
        joined.settle(is_written=is_written)
    # The caller expects the rows of its own steps.
    return None if rows is None else rows[:-1]
