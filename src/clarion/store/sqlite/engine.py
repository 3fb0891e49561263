"""The SQLite engine: group commit into the writer process, short reads on the loop's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from clarion.errors import StartError, StoreUnavailable
from clarion.store.companions import write_accompanied
from clarion.store.group_commit import COMMIT_LIMIT_S, GroupCommit, Rows
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.slots import BACKGROUND_LIMIT_S, Slots, SlowReadLimits
from clarion.store.sqlite.process import WriterProcess
from clarion.store.sqlite.reader import ThreadReader, open_quick_reader
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import Row, Statement, Unit, Value
from clarion.system.child_process import Child
from clarion.telemetry.outages import QUIET_S, Outage

# A read that takes long holds the log. The writer does not wait for it; it tries again.
_SCRUB_ATTEMPTS = 50
_SCRUB_PAUSE_S = 0.1


class SqliteEngine:
    """An open SQLite database.

    A short indexed read takes microseconds, so `fetch` runs it on the thread of the event loop;
    another thread would cost ten times as much. Long ones run one at a time, in a thread: they must
    leave the processor to the short ones. Those of housekeeping have another thread.
    """

    shared_read_pause_s = 0.001

    def __init__(
        self,
        path: str,
        process: WriterProcess,
        commit: GroupCommit,
        limits: SlowReadLimits,
        outage: Outage,
    ) -> None:
        self.commit = commit
        self._outage = outage
        self._process = process
        self._reader = open_quick_reader(path)
        self._slow = ThreadReader(path, "slow-reads", limit_s=limits.read_s)
        self._slow_slots = Slots(1, wait_s=limits.wait_s)
        self._background = ThreadReader(path, "background-reads", limit_s=BACKGROUND_LIMIT_S)
        self._background_turn = asyncio.Lock()
        self._scrub_turn = asyncio.Lock()
        # How many scrubs were asked for, and up to which one that is done.
        self._scrubs = self._scrubbed = 0

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        waiting_limit: int,
        batch_limit: int,
        on_broken: Callable[[str], None],
        slow_reads: SlowReadLimits,
        writer: Child | None = None,
    ) -> SqliteEngine:
        """Open a database whose migrations are applied."""
        process = await WriterProcess.start(path, on_broken, writer)
        outage = Outage(
            "database_unavailable", "database_available", quiet_s=QUIET_S, host=f"SQLite {path}"
        )
        commit = GroupCommit(
            process,
            waiting_limit=waiting_limit,
            batch_limit=batch_limit,
            on_unavailable=lambda error: outage.begin(error.detail),
        )
        return cls(path, process, commit, slow_reads, outage)

    async def write(self, unit: Unit) -> Rows | None:
        return await write_accompanied(self.commit, unit)

    async def write_apart(self, unit: Unit) -> Rows | None:
        return await self.commit.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        try:
            return self._reader.execute(statement.text, statement.bind(**values)).fetchall()
        except apsw.Error as error:
            raise self._fail(error) from error

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        row = statement.bind(**values)
        async with self._slow_slots.take(values.get("app_id")):
            return await self._read(self._slow, statement.text, row)

    async def fetch_in_background(self, statement: Statement, **values: Value) -> Sequence[Row]:
        row = statement.bind(**values)
        async with self._background_turn:
            return await self._read(self._background, statement.text, row)

    async def _read(self, reader: ThreadReader, text: str, row: Row) -> Sequence[Row]:
        try:
            return await reader.fetch(text, row)
        except apsw.Error as error:
            raise self._fail(error) from error

    def _fail(self, error: apsw.Error) -> StoreUnavailable:
        self._outage.begin(f"The file cannot be read ({type(error).__name__})")
        return StoreUnavailable()

    async def scrub(self) -> bool:
        self._scrubs += 1
        asked = self._scrubs
        async with self._scrub_turn:
            # One that began after this was asked for has done it.
            if self._scrubbed < asked:
                began = self._scrubs
                if not await self._scrub_all():
                    return False
                self._scrubbed = began
        return True

    async def _scrub_all(self) -> bool:
        page: int | None = 1
        for _ in range(_SCRUB_ATTEMPTS):
            while page is not None and (done := await self._process.scrub(page)) is not None:
                page = done.next_page
            if page is None:
                return True
            await asyncio.sleep(_SCRUB_PAUSE_S)
        return False

    async def read_time(self) -> None:
        return None

    async def check(self) -> None:
        if self.commit.is_stuck:
            raise StoreUnavailable
        try:
            self._reader.execute("SELECT 1").fetchall()
        except apsw.Error as error:
            raise self._fail(error) from error
        self._outage.end()

    async def close(self) -> None:
        """Commit all waiting units, then close; a writer that hangs is killed."""
        closing = asyncio.ensure_future(self.commit.close())
        await asyncio.wait([closing], timeout=COMMIT_LIMIT_S)
        await self._process.close()
        await closing
        self._reader.close()
        self._slow.close()
        self._background.close()


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
