"""The PostgreSQL database into which is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import asyncpg
import msgspec

from clarion.errors import CommandFailed
from clarion.store.copying.tables import NOTHING, Checksum, CopiedTable
from clarion.store.migrations.plan import apply_to_postgres
from clarion.store.statement import Row

# Any number, as long as every release of Clarion uses the same.
_LOCK = 0x636C6370
# PostgreSQL notices that a copy was killed when its last statement has ended.
_LOCK_WAIT_S = 10.0
# The row of the copy itself, among those of its tables.
_COPY = ""
_READ_ROWS = 1_000
_LIST_COLUMNS = """SELECT table_name::text, column_name::text FROM information_schema.columns
JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"""
_LIST_TRIGGERED = """SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger
JOIN pg_class ON pg_class.oid = tgrelid
WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace"""
_SAVE = """INSERT INTO copied_tables (name, copy_id, last_key, row_count, checksum, is_complete)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO UPDATE SET last_key = excluded.last_key,
row_count = excluded.row_count, checksum = excluded.checksum, is_complete = excluded.is_complete"""
_ADD_INSTALLATION = """INSERT INTO installation (id, slot, seal, created_at, copy_id)
VALUES ($1, 1, $2, $3, $4)"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a table is copied."""

    copied: Checksum = NOTHING
    last_key: Row | None = None
    is_complete: bool = False


class Target:
    """A connection to the database."""

    def __init__(self, connection: asyncpg.Connection, lock_wait_s: float = _LOCK_WAIT_S) -> None:
        self._connection = connection
        self._lock_wait_s = lock_wait_s

    async def prepare(self) -> None:
        """Lock out other copies, and bring the database up to date."""
        await self._connection.execute(f"SET lock_timeout = '{int(self._lock_wait_s * 1000)}ms'")
        try:
            await self._connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        except asyncpg.LockNotAvailableError as error:
            what = "Another `clarion migrate-data` copies into this database."
            raise CommandFailed(what) from error
        finally:
            await self._connection.execute("RESET lock_timeout")
        await apply_to_postgres(self._connection)

    async def find_finished(self) -> str | None:
        """Return the id of the copy that this database is; None if it was opened since."""
        found: str | None = await self._connection.fetchval(
            "SELECT copy_id FROM installation WHERE slot = 1"
        )
        return found

    async def find_copy(self) -> str | None:
        """Return the id of the copy that was begun; None if none was."""
        found: str | None = await self._connection.fetchval(
            "SELECT copy_id FROM copied_tables WHERE name = $1", _COPY
        )
        return found

    async def find_filled(self) -> str | None:
        """Return a table that has rows."""
        names = {row[0] for row in await self._connection.fetch(_LIST_COLUMNS)}
        looks = [
            f"SELECT '{name}' WHERE EXISTS (SELECT FROM {name})"  # noqa: S608 - of the schema
            for name in sorted(names - {"migrations"})
        ]
        found: str | None = await self._connection.fetchval(" UNION ALL ".join(looks))
        return found

    async def check_columns(self, tables: Sequence[CopiedTable]) -> None:
        """Raise `CommandFailed` if a table differs from that of the source."""
        found: dict[str, set[str]] = {}
        for name, column in await self._connection.fetch(_LIST_COLUMNS):
            found.setdefault(name, set()).add(column)
        for table in tables:
            if found.get(table.name) != set(table.columns):
                raise CommandFailed(f"The tables {table.name} of the two databases differ.")

    async def clear(self) -> None:
        """Delete the rows of an earlier copy."""
        names = {row[0] for row in await self._connection.fetch(_LIST_COLUMNS)}
        await self._connection.execute(f"TRUNCATE {', '.join(sorted(names - {'migrations'}))}")

    async def begin(self, copy_id: str) -> None:
        """Record the copy. Triggers are off until its end, because their rows are copied, too."""
        async with self._connection.transaction():
            await self._set_triggers("DISABLE")
            await self._connection.execute(_SAVE, _COPY, copy_id, None, 0, "", 0)

    async def read_progress(self) -> dict[str, Progress]:
        """Return the progress of each table whose copy has begun."""
        rows = await self._connection.fetch(
            """SELECT name, last_key, row_count, checksum, is_complete FROM copied_tables
            WHERE name <> $1""",
            _COPY,
        )
        return {
            name: Progress(
                Checksum(count, int(checksum, 16)),
                None if key is None else tuple(msgspec.msgpack.decode(key)),
                bool(is_complete),
            )
            for name, key, count, checksum, is_complete in rows
        }

    async def add(
        self, copy_id: str, table: CopiedTable, rows: Sequence[Row], done: Progress
    ) -> None:
        """Write rows, and how far the table is copied with them."""
        try:
            async with self._connection.transaction():
                await self._connection.copy_records_to_table(
                    table.name, records=rows, columns=table.columns
                )
                await self._save(copy_id, table, done)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
            raise CommandFailed(f"PostgreSQL refuses rows of {table.name}: {error}") from error

    async def complete(self, copy_id: str, table: CopiedTable, progress: Progress) -> None:
        """Record that a table is copied."""
        await self._save(copy_id, table, replace(progress, is_complete=True))

    async def _save(self, copy_id: str, table: CopiedTable, progress: Progress) -> None:
        key = None if progress.last_key is None else msgspec.msgpack.encode(progress.last_key)
        copied = progress.copied
        await self._connection.execute(
            _SAVE, table.name, copy_id, key, copied.count, copied.hex, int(progress.is_complete)
        )

    async def read_checksum(self, table: CopiedTable) -> Checksum:
        """Read all rows of a table, and return their count and checksum."""
        found = Checksum()
        text = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - of the schema
        async with self._connection.transaction(readonly=True):
            cursor = await self._connection.cursor(text)
            while rows := await cursor.fetch(_READ_ROWS):
                found = found.add(map(tuple, rows))
        return found

    async def finish(self, copy_id: str, id_: str, seal: bytes, created_at: int) -> None:
        """Make the copy a database that servers open; the first one removes the id of the copy."""
        async with self._connection.transaction():
            await self._set_triggers("ENABLE")
            await self._connection.execute(_ADD_INSTALLATION, id_, seal, created_at, copy_id)
            await self._connection.execute("DELETE FROM copied_tables")
        # Without statistics PostgreSQL would choose poor plans until its own analysis.
        await self._connection.execute("ANALYZE")

    async def _set_triggers(self, how: str) -> None:
        for (name,) in await self._connection.fetch(_LIST_TRIGGERED):
            await self._connection.execute(f"ALTER TABLE {name} {how} TRIGGER USER")
