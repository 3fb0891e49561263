"""Reads the numbered SQL files and applies those that a database lacks.

`0003_name.sql` is for both engines; `0003_name.sqlite.sql` and `0003_name.postgres.sql` are used
where they must differ. Each file and the row that records it are one transaction: a crash
leaves the database as before the file or after it. A file that was applied must not change.

An upgrade of several nodes has two steps. In the first, nodes of the earlier release still run: a
file may only add what these need not know. What removes or renames something they use is in a file
`0004_name.after.sql`, which is applied when none of them is left.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import apsw
import msgspec

from clarion.errors import MigrationError
from clarion.store.postgres.release_locks import MIGRATION_LOCK, find_older_nodes
from clarion.store.statement import Row
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncpg

_NAME = re.compile(
    r"(?P<version>\d{4})_(?P<name>\w+?)(\.(?P<step>after))?(\.(?P<engine>sqlite|postgres))?\.sql"
)
_LOCK_WAIT_S = 2
_LOCK_ATTEMPTS = 60
# A migration without a step counts as the one that an earlier release cannot live with.
_RECORD_TABLE = (
    "CREATE TABLE IF NOT EXISTS migrations "
    "(version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, "
    "step TEXT NOT NULL DEFAULT 'after')"
)
RECORDED = "SELECT version, checksum FROM migrations"
_RECORDED_STEPS = "SELECT version, checksum, step FROM migrations"
_RECORD = "INSERT INTO migrations (version, name, checksum, step) VALUES ($1, $2, $3, $4)"
_REPAIR = "Install the Clarion release that created it, or restore a backup."
_START_ANEW = (
    "It was created by another version, such as one from before the first release. Install that "
    "version, or start with a new database: another --data or --database."
)


class MigrationStep(StrEnum):
    """When a migration is applied: before nodes of the earlier release are gone, or after."""

    BEFORE = "before"
    AFTER = "after"


class Migration(msgspec.Struct, frozen=True):
    """One numbered change of the schema."""

    version: int
    name: str
    sql: str
    step: MigrationStep = MigrationStep.BEFORE

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def record(self) -> tuple[int, str, str, str]:
        return self.version, self.name, self.checksum, self.step

    @property
    def title(self) -> str:
        return f"{self.version:04} {self.name}"


# Takes an `after` step that waits, and the nodes for which it waits.
OnPostponed = Callable[[Migration, Sequence[str]], None]


def load(engine: str) -> list[Migration]:
    """Return the migrations for an engine, in order."""
    found = []
    for file in resources.files(__package__).iterdir():
        match = _NAME.fullmatch(file.name)
        if match and match["engine"] in (None, engine):
            step = MigrationStep(match["step"] or MigrationStep.BEFORE)
            found.append(Migration(int(match["version"]), match["name"], file.read_text(), step))
    return sorted(found, key=lambda migration: migration.version)


@cache
def find_newest(engine: str) -> int:
    """Return the number of the newest migration that this release has."""
    return load(engine)[-1].version


def find_oldest(engine: str) -> Migration:
    """Return the migration that creates the first tables."""
    return load(engine)[0]


def find_missing(migrations: Sequence[Migration], recorded: Iterable[Row]) -> list[Migration]:
    """Return the migrations that are missing; `MigrationError` if the database does not match.

    A row has the version and checksum of a migration, and its step if that is known. A database may
    be ahead of this release by additions, but not by an `after` step.
    """
    applied = {version: _Record(checksum, *step) for version, checksum, *step in recorded}
    missing = [migration for migration in migrations if migration.version not in applied]
    if mismatch := _explain_mismatch(migrations, applied, missing):
        raise MigrationError(mismatch)
    return missing


class _Record(NamedTuple):
    """What the database has recorded of a migration."""

    checksum: str
    step: str = MigrationStep.AFTER


def _explain_mismatch(
    migrations: Sequence[Migration],
    applied: Mapping[int, _Record],
    missing: Sequence[Migration],
) -> str | None:
    for each in migrations:
        if each.version in applied and applied[each.version].checksum != each.checksum:
            what = "was applied to this database with different content"
            return f"Migration {each.title} {what}. {_START_ANEW}"
    newest = migrations[-1].version if migrations else 0
    unknown = set(applied) - {migration.version for migration in migrations}
    ahead = [each for each in unknown if applied[each].step != MigrationStep.BEFORE]
    if max(ahead, default=0) > newest:
        return (
            f"The database is at migration {max(ahead)}, but this release of Clarion only knows up "
            f"to {newest}. Start the newer release, or restore a backup from before the upgrade."
        )
    if unknown and min(unknown) < newest:
        what = f"has migration {min(unknown)}, which this release of Clarion does not know"
        return f"The database {what}. {_REPAIR}"
    return _explain_gap(applied, missing)


def _explain_gap(applied: Mapping[int, _Record], missing: Sequence[Migration]) -> str | None:
    # An `after` step waits, while others are applied.
    needed = [each for each in missing if each.step is MigrationStep.BEFORE]
    if needed and needed[0].version < max(applied, default=0):
        return f"The database lacks migration {needed[0].title}, but has later ones. {_REPAIR}"
    return None


def apply_to_sqlite(
    connection: apsw.Connection, migrations: Sequence[Migration] | None = None
) -> list[str]:
    """Apply missing migrations, each in an immediate transaction, and return the titles.

    Only one server uses the file, so both steps are applied.
    """
    migrations = load("sqlite") if migrations is None else migrations
    titles: list[str] = []
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_RECORD_TABLE)
            missing = find_missing(migrations, read_from_sqlite(connection))
            if missing:
                migration = missing[0]
                connection.execute(migration.sql).fetchall()
                connection.execute(_RECORD, migration.record)
                titles.append(migration.title)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if not missing:
            return titles


def log_postponed(migration: Migration, nodes: Sequence[str]) -> None:
    get_logger().warning(
        "migration_postponed",
        migration=migration.title,
        nodes_of_earlier_releases=nodes,
        advice="When they are stopped, run `clarion migrate`, or restart a node",
    )


async def apply_to_postgres(
    connection: asyncpg.Connection,
    migrations: Sequence[Migration] | None = None,
    *,
    on_postponed: OnPostponed = log_postponed,
) -> list[str]:
    """Apply missing migrations under a session lock for all nodes, and return the titles.

    An `after` step is left out, and `on_postponed` called, as long as nodes that do not know it
    run.
    """
    migrations = load("postgres") if migrations is None else migrations
    await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
    try:
        # A change of a table waits for the running queries on it, and later queries wait behind it.
        await connection.execute(f"SET lock_timeout = '{_LOCK_WAIT_S}s'")
        await connection.execute(_RECORD_TABLE)
        titles = []
        for migration in find_missing(migrations, await read_from_postgres(connection)):
            if nodes := await _find_nodes_before(connection, migration):
                on_postponed(migration, nodes)
            else:
                await _apply_patiently(connection, migration)
                titles.append(migration.title)
        return titles
    finally:
        await connection.execute("RESET lock_timeout")
        await connection.execute("SELECT pg_advisory_unlock($1)", MIGRATION_LOCK)


def read_from_sqlite(connection: apsw.Connection) -> list[Row]:
    """Return the version, checksum and step of each migration that was applied."""
    return connection.execute(_RECORDED_STEPS).fetchall()


async def read_from_postgres(connection: asyncpg.Connection) -> list[Row]:
    """Return the version, checksum and step of each migration that was applied."""
    return [tuple(row) for row in await connection.fetch(_RECORDED_STEPS)]


async def _find_nodes_before(connection: asyncpg.Connection, migration: Migration) -> list[str]:
    if migration.step is MigrationStep.BEFORE:
        return []
    return await find_older_nodes(connection, migration.version)


async def _apply_patiently(connection: asyncpg.Connection, migration: Migration) -> None:
    """Apply a migration; try again if a table is in use for long, or others wait for each other."""
    from asyncpg import (  # noqa: PLC0415 - only with PostgreSQL
        DeadlockDetectedError,
        LockNotAvailableError,
    )

    for _ in range(_LOCK_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(_RECORD, *migration.record)
        except (DeadlockDetectedError, LockNotAvailableError):
            await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - jitter
        else:
            return
    raise MigrationError(
        f"Migration {migration.title} cannot lock its tables: somebody uses them without a pause. "
        "End long transactions on the database, and try again."
    )
