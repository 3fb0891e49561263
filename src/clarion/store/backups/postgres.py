"""Backs up and restores a PostgreSQL database by COPY, so that no program of PostgreSQL is needed.

`pg_dump` must not be older than the server, and is often not installed where Clarion runs. One
REPEATABLE READ transaction reads every table as of the same moment and blocks no writer. A restore
applies the migrations of the backup to an empty database and fills the tables, in one transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import apsw
import asyncpg

from clarion.errors import CommandFailed, StartError
from clarion.store.backups.archive import Archive, ArchiveWriter, OnProgress, Table
from clarion.store.migrations.plan import (
    RECORDED,
    Migration,
    apply_to_postgres,
    apply_to_sqlite,
    load,
)
from clarion.store.postgres.engine import connect_or_explain
from clarion.store.postgres.release_locks import MIGRATION_LOCK

# `migrations` is part of the manifest.
_RECORDS = "migrations"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_TABLES = """SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum),
    pg_total_relation_size(c.oid)
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  GROUP BY c.oid, c.relname ORDER BY c.relname"""
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


class Snapshot:
    """All tables of a database as of one moment."""

    def __init__(self, connection: asyncpg.Connection, as_of: int) -> None:
        self.connection = connection
        self.as_of = as_of

    async def list_migrations(self) -> tuple[tuple[int, str], ...]:
        return tuple(sorted(map(tuple, await self.connection.fetch(RECORDED))))

    async def pack(self, archive: ArchiveWriter, on_progress: OnProgress) -> dict[str, Table]:
        """Write every table of Clarion into the archive."""
        ours = list_names(version for version, _ in await self.list_migrations())
        found = [row for row in await self.connection.fetch(_TABLES) if row[0] in ours]
        done, total = 0, sum(size for _, _, size in found)
        packed = {}
        for name, columns, size in found:
            packed[name] = await self._pack(name, columns, archive)
            done += size
            on_progress(done, total)
        return packed

    async def _pack(self, name: str, columns: Sequence[str], archive: ArchiveWriter) -> Table:
        with archive.add(_member(name)) as write:

            async def take(data: bytes) -> None:
                write(data)

            status = await self.connection.copy_from_table(name, columns=columns, output=take)
        return Table(int(status.split()[-1]), tuple(columns))


@contextlib.asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """Read the database as of this moment; later writes are not in it."""
    connection = await connect_or_explain(url)
    try:
        # Before the snapshot, which includes everything committed by then.
        as_of = await connection.fetchval(_NOW)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            if await connection.fetchval("SELECT to_regclass($1)", _RECORDS) is None:
                raise StartError("The database is empty: there is nothing to back up.")
            yield Snapshot(connection, as_of)
    except _ERRORS as error:
        raise CommandFailed(f"PostgreSQL failed: {error}. Nothing was written.") from error
    finally:
        await connection.close()


async def restore(archive: Archive, url: str, on_progress: OnProgress) -> None:
    """Fill an empty database, all of it or nothing."""
    connection = await connect_or_explain(url)
    try:
        # Until the connection ends: a node that starts, or another restore, waits.
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        async with connection.transaction():
            await _refuse_tables(connection)
            await apply_to_postgres(connection, _list_migrations(archive))
            tables = archive.manifest.tables
            _check_names(archive)
            total, done = archive.manifest.rows, 0
            for name, table in tables.items():
                await _fill(connection, archive, name, table)
                done += table.rows
                on_progress(done, total)
        await connection.execute("ANALYZE")
    except _ERRORS as error:
        raise CommandFailed(f"PostgreSQL refused the restore: {error}") from error
    finally:
        await connection.close()


async def _refuse_tables(connection: asyncpg.Connection) -> None:
    if found := await connection.fetch(_TABLES):
        raise StartError(
            f"The database is not empty: it has the table {found[0][0]}. "
            "Create a new one with createdb, and name it with --database."
        )


def _check_names(archive: Archive) -> None:
    known = list_names(version for version, _ in archive.manifest.migrations)
    if unknown := set(archive.manifest.tables) - known:
        raise CommandFailed(f"The backup has a table that Clarion does not: {min(unknown)!r}.")


async def _fill(connection: asyncpg.Connection, archive: Archive, name: str, table: Table) -> None:
    # What triggers would write is in the backup, too; and migrations may have added rows.
    await connection.execute(f'ALTER TABLE "{name}" DISABLE TRIGGER USER')
    await connection.execute(f'TRUNCATE "{name}"')
    status = await connection.copy_to_table(
        name, columns=table.columns, source=_iterate(archive.read(_member(name)))
    )
    await connection.execute(f'ALTER TABLE "{name}" ENABLE TRIGGER USER')
    if int(status.split()[-1]) != table.rows:
        raise CommandFailed(
            f"{name} has {table.rows:,} rows in the backup, but {status} were read."
        )


async def _iterate(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for each in chunks:
        yield each


def _list_migrations(archive: Archive) -> list[Migration]:
    # Not all up to the last: while nodes are upgraded one by one, some are postponed.
    applied = {version for version, _ in archive.manifest.migrations}
    return [each for each in load("postgres") if each.version in applied]


def list_names(versions: Iterable[int]) -> set[str]:
    """Return the tables that these migrations make: they are the same on both engines.

    There may be tables of others in the database.
    """
    applied = set(versions)
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        apply_to_sqlite(connection, [each for each in load("sqlite") if each.version in applied])
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {str(name) for (name,) in names} - {_RECORDS}


def _member(table: str) -> str:
    return f"tables/{table}"
