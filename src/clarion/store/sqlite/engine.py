"""The SQLite engine: group commit into the writer process, reads on the loop's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from clarion.errors import StartError, StoreUnavailable
from clarion.store.group_commit import COMMIT_LIMIT_S, GroupCommit, Rows
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.process import WriterProcess
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import Row, Statement, Unit, Value


class SqliteEngine:
    """An open SQLite database.

    A short indexed read takes microseconds, so `fetch` runs it on the thread of the event loop;
    another thread would cost ten times as much.
    """

    def __init__(
        self, path: str, reader: apsw.Connection, process: WriterProcess, commit: GroupCommit
    ) -> None:
        self.commit = commit
        self._path = path
        # One at a time: long reads must leave the processor to the short ones.
        self._slow = ThreadPoolExecutor(1, "slow-reads")
        self._reader = reader
        self._process = process

    @classmethod
    async def open(
        cls, path: str, *, waiting_limit: int, batch_limit: int, on_broken: Callable[[str], None]
    ) -> SqliteEngine:
        """Open a database whose migrations are applied."""
        process = await WriterProcess.start(path, on_broken)
        reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        reader.set_busy_timeout(100)
        reader.execute("PRAGMA mmap_size=268435456").fetchall()
        commit = GroupCommit(process, waiting_limit=waiting_limit, batch_limit=batch_limit)
        return cls(path, reader, process, commit)

    async def write(self, unit: Unit) -> Rows | None:
        return await self.commit.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        try:
            return self._reader.execute(statement.text, statement.bind(**values)).fetchall()
        except apsw.Error as error:
            raise StoreUnavailable from error

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Run a long read in a thread, on a connection of its own."""
        row = statement.bind(**values)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._slow, self._fetch_alone, statement.text, row)

    def _fetch_alone(self, text: str, row: Row) -> Sequence[Row]:
        try:
            connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY)
            try:
                return connection.execute(text, row).fetchall()
            finally:
                connection.close()
        except apsw.Error as error:
            raise StoreUnavailable from error

    async def check(self) -> None:
        if self.commit.is_stuck:
            raise StoreUnavailable
        try:
            self._reader.execute("SELECT 1").fetchall()
        except apsw.Error as error:
            raise StoreUnavailable from error

    async def close(self) -> None:
        """Commit all waiting units, then close; a writer that hangs is killed."""
        closing = asyncio.ensure_future(self.commit.close())
        await asyncio.wait([closing], timeout=COMMIT_LIMIT_S)
        await self._process.close()
        await closing
        self._reader.close()
        self._slow.shutdown(wait=True)


def migrate(path: str) -> list[str]:
    """Create the database if it does not exist, apply missing migrations, return their titles."""
    try:
        connection = open_connection(path)
        try:
            return apply_to_sqlite(connection)
        finally:
            connection.close()
    except apsw.NotADBError as error:
        raise StartError(
            f"{path} is not a SQLite database. Move it away, or choose another with --database."
        ) from error
    except apsw.Error as error:
        raise StartError(
            f"Cannot open the database {path} ({type(error).__name__}). {_advice(path)}"
        ) from error


def _advice(path: str) -> str:
    parent = Path(path).parent
    if not parent.is_dir():
        return f"The directory {parent} does not exist: create it, or choose another with --data."
    return f"Check that {parent} and its files belong to this account, and that the disk has space."
