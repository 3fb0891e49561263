"""The port of a database: write units, fetch rows."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from clarion.errors import Conflict
from clarion.store.group_commit import GroupCommit, Rows
from clarion.store.statement import Row, Statement, Unit, Value


class Fetch(Protocol):
    """Reads rows, as `Engine.fetch` does."""

    def __call__(self, statement: Statement, **values: Value) -> Awaitable[Sequence[Row]]: ...


class Engine(Protocol):
    """An open database."""

    commit: GroupCommit
    # How long shared reads wait for others to come: the longer, the more a read costs.
    shared_read_pause_s: float

    async def write(self, unit: Unit) -> Rows | None:
        """Commit a unit and return the rows of its steps, or None if a guard refused it.

        Returns after the commit is durable. `Conflict` if a constraint refused it, `Overloaded`
        if too many units are waiting: in both cases nothing is changed.
        """

    async def write_apart(self, unit: Unit) -> Rows | None:
        """Do as `write` does, on a connection apart from requests, as far as there is one.

        For claims and heart-beats: requests do not wait for them, nor they for requests.
        """

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Return the rows of a short, indexed read."""

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Return the rows of a read that may take long, without blocking the short ones.

        Few run at once, and those of one app (`app_id`) one after the other. `Overloaded` if it
        has to wait too long for its turn, `ReadTooSlow` if it takes too long.
        """

    async def fetch_in_background(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Return the rows of a long read of housekeeping.

        It has a connection of its own, so that no number of requests can keep it waiting.
        """

    async def scrub(self) -> bool:
        """Remove deleted data from the files of the database, as far as the engine can.

        SQLite overwrites deleted data; this removes it from the log, too. False if that must be
        tried again, because a read is running. On PostgreSQL the vacuum does it later.
        """

    async def read_time(self) -> int | None:
        """Return the milliseconds since 1970 by the clock of the database; None if it has none."""

    async def check(self) -> None:
        """Return if the database answers; raise `StoreUnavailable` otherwise."""

    async def close(self) -> None:
        """Commit all waiting units, then close."""


@contextmanager
def explain_conflict(detail: str) -> Iterator[None]:
    """Say what exists already if a write in the block is a `Conflict`."""
    try:
        yield
    except Conflict as error:
        raise Conflict(detail) from error
