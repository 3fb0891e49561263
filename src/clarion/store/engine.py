"""The ports of a database: write units, fetch rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from clarion.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clarion.store.batch import Outcome
    from clarion.store.group_commit import GroupCommit
    from clarion.store.statement import Row, Statement, Unit, Value


class BatchRunner(Protocol):
    """Runs one batch of units in one durable transaction."""

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        """Return the outcome of each unit, after the commit. Raises if the whole batch failed."""
        ...


class Engine(Protocol):
    """An open database."""

    commit: GroupCommit

    async def write(self, unit: Unit) -> tuple[tuple[Row, ...], ...] | None:
        """Commit a unit and return the rows of its steps, or None if a guard refused it.

        Returns after the commit is durable. `Conflict` if a constraint refused it, `Overloaded`
        if too many units are waiting: in both cases nothing is changed.
        """
        ...

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Return the rows of a short, indexed read."""
        ...

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Return the rows of a read that may take long, without blocking others."""
        ...

    async def check(self) -> None:
        """Return if the database answers; raise `StoreUnavailable` otherwise."""
        ...

    async def close(self) -> None:
        """Commit all waiting units, then close."""
        ...


@contextmanager
def explain_conflict(detail: str) -> Iterator[None]:
    """Say what exists already if a write in the block is a `Conflict`."""
    try:
        yield
    except Conflict as error:
        raise Conflict(detail) from error
