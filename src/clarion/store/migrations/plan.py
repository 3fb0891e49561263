"""Reads the numbered SQL files and applies those that a database lacks.

`0003_name.sql` is for both engines; `0003_name.sqlite.sql` and `0003_name.postgres.sql` are used
where they must differ. Each file and the row that records it are one transaction: a crash
leaves the database as before the file or after it. A file that was applied must not change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import apsw
import asyncpg

from clarion.errors import MigrationError
from clarion.store.statement import Row

_NAME = re.compile(r"(?P<version>\d{4})_(?P<name>\w+?)(\.(?P<engine>sqlite|postgres))?\.sql")
# Any number, as long as every release of Clarion uses the same.
_LOCK = 0x636C6172
_RECORD_TABLE = (
    "CREATE TABLE IF NOT EXISTS migrations "
    "(version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
)
RECORDED = "SELECT version, checksum FROM migrations"
_RECORD = "INSERT INTO migrations (version, name, checksum) VALUES ($1, $2, $3)"
_REPAIR = "Install the Clarion release that created it, or restore a backup."


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered change of the schema."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def title(self) -> str:
        return f"{self.version:04} {self.name}"


def load(engine: str) -> list[Migration]:
    """Return the migrations for an engine, in order."""
    found = []
    for file in resources.files(__package__).iterdir():
        match = _NAME.fullmatch(file.name)
        if match and match["engine"] in (None, engine):
            found.append(Migration(int(match["version"]), match["name"], file.read_text()))
    return sorted(found, key=lambda migration: migration.version)


def find_missing(migrations: Sequence[Migration], recorded: Iterable[Row]) -> list[Migration]:
    """Return the migrations that are missing; `MigrationError` if the database does not match."""
    applied: dict[int, str] = dict(recorded)
    missing = [migration for migration in migrations if migration.version not in applied]
    if mismatch := _explain_mismatch(migrations, applied, missing):
        raise MigrationError(mismatch)
    return missing


def _explain_mismatch(
    migrations: Sequence[Migration], applied: Mapping[int, str], missing: Sequence[Migration]
) -> str | None:
    newest = migrations[-1].version if migrations else 0
    unknown = max(set(applied) - {migration.version for migration in migrations}, default=0)
    if unknown > newest:
        return (
            f"The database is at migration {unknown}, but this release of Clarion only knows up to "
            f"{newest}. Start the newer release, or restore a backup from before the upgrade."
        )
    if unknown:
        what = f"has migration {unknown}, which this release of Clarion does not know"
        return f"The database {what}. {_REPAIR}"
    for each in migrations:
        if applied.get(each.version, each.checksum) != each.checksum:
            what = "was applied to this database with different content"
            return f"Migration {each.title} {what}. {_REPAIR}"
    if missing and missing[0].version < max(applied, default=0):
        return f"The database lacks migration {missing[0].title}, but has later ones. {_REPAIR}"
    return None


def apply_to_sqlite(
    connection: apsw.Connection, migrations: Sequence[Migration] | None = None
) -> list[str]:
    """Apply what is missing, each in an immediate transaction, and return the titles."""
    migrations = load("sqlite") if migrations is None else migrations
    titles: list[str] = []
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_RECORD_TABLE)
            missing = find_missing(migrations, connection.execute(RECORDED).fetchall())
            if missing:
                migration = missing[0]
                connection.execute(migration.sql).fetchall()
                record = (migration.version, migration.name, migration.checksum)
                connection.execute(_RECORD, record)
                titles.append(migration.title)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if not missing:
            return titles


async def apply_to_postgres(
    connection: asyncpg.Connection, migrations: Sequence[Migration] | None = None
) -> list[str]:
    """Apply what is missing under a session lock for all nodes, and return the titles."""
    migrations = load("postgres") if migrations is None else migrations
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        await connection.execute(_RECORD_TABLE)
        missing = find_missing(migrations, map(tuple, await connection.fetch(RECORDED)))
        for migration in missing:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    _RECORD, migration.version, migration.name, migration.checksum
                )
        return [migration.title for migration in missing]
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
