"""T10: migrations are killed at every step, and then run again."""

import asyncio
import hashlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol

import apsw
import asyncpg
import pytest

from clarion.store.batch import arrange
from clarion.store.migrations.plan import apply_to_postgres, apply_to_sqlite, load
from clarion.store.sqlite.runner import SqliteRunner, open_connection
from tests.faults.migrating import LATER, migrate, run_apart
from tests.faults.power_loss import (
    Disk,
    Image,
    Operation,
    RecordingVfs,
    Survival,
    digest_of,
    everything,
    nothing,
    torn,
    write_image,
)
from tests.faults.scenario import DATABASE, key_unit, read_survivors
from tests.faults.sizes import CRASH, SIZES

pytestmark = CRASH

NAMES = frozenset({"a", "b", "c"})
STEPS_AT_MOST = 1_000


class Database(Protocol):
    """A database to migrate, whatever the engine."""

    url: str

    async def clear(self) -> None: ...

    async def migrate(self) -> list[str]: ...

    async def describe(self) -> list[tuple[object, ...]]: ...


class SqliteDatabase:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DATABASE
        self.url = f"sqlite:///{self._path}"

    async def clear(self) -> None:
        for file in self._path.parent.glob(f"{DATABASE}*"):
            file.unlink()

    async def migrate(self) -> list[str]:
        return migrate_file(self._path)

    async def describe(self) -> list[tuple[object, ...]]:
        return describe_file(self._path)


class PostgresDatabase:
    """A database on the shared server."""

    def __init__(self, url: str, connection: asyncpg.Connection) -> None:
        self.url = url
        self._connection = connection

    async def clear(self) -> None:
        await self._connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    async def migrate(self) -> list[str]:
        return await apply_to_postgres(self._connection, [*load("postgres"), *LATER])

    async def describe(self) -> list[tuple[object, ...]]:
        columns = await self._connection.fetch(
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'public' ORDER BY 1, 2"
        )
        indexes = await self._connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
        )
        applied = await self._connection.fetch("SELECT * FROM migrations ORDER BY 1")
        return [tuple(row) for row in (*columns, *indexes, *applied)]


def migrate_file(path: Path) -> list[str]:
    connection = open_connection(str(path))
    try:
        return apply_to_sqlite(connection, [*load("sqlite"), *LATER])
    finally:
        connection.close()


def describe_file(path: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        schema = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name")
        return [*schema, *connection.execute("SELECT * FROM migrations ORDER BY 1")]
    finally:
        connection.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path)


@pytest.fixture
async def postgres(postgres_database: str) -> AsyncIterator[PostgresDatabase]:
    connection = await asyncpg.connect(postgres_database)
    yield PostgresDatabase(postgres_database, connection)
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    """The same tests for both engines."""
    chosen: Database = request.getfixturevalue(request.param)
    return chosen


async def describe_whole(database: Database) -> list[tuple[object, ...]]:
    """Return what an undisturbed migration makes, and leave an empty database."""
    await database.clear()
    await database.migrate()
    whole = await database.describe()
    await database.clear()
    return whole


async def test_a_killed_migration_is_finished_by_the_next(
    database: Database, figures: Callable[[str], None]
) -> None:
    """T10: killed at any statement, the next run completes; one more changes nothing."""
    whole = await describe_whole(database)
    for step in range(1, STEPS_AT_MOST, SIZES.migration_stride):
        ended = await run_apart(migrate, database.url, step)
        await database.migrate()
        assert await database.describe() == whole, f"killed at statement {step}"
        assert await database.migrate() == []
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        await database.clear()
    kills = (step - 1) // SIZES.migration_stride
    figures(f"T10 {type(database).__name__}: killed {kills} times in {step - 1} statements")
    assert ended == 0, "there are more statements"
    # Each has a transaction, what it does, its record and a commit.
    assert step > 4 * len([*load("sqlite"), *LATER])


@pytest.mark.parametrize("number", range(3 * SIZES.migration_rounds))
async def test_two_migrations_at_once_both_end_well(database: Database, number: int) -> None:
    """T10: of two processes that start together, one migrates and the other finds it done."""
    whole = await describe_whole(database)
    ended = await asyncio.gather(*(run_apart(migrate, database.url, 0) for _ in range(2)))
    assert ended == [0, 0], number
    assert await database.describe() == whole


def record(folder: Path) -> tuple[list[Operation], int]:
    """Migrate, fill, migrate on; return the operations, and how many there were when filled."""
    with RecordingVfs(f"recording-{folder}") as vfs:
        connection = open_connection(str(folder / DATABASE), vfs=vfs.name)
        apply_to_sqlite(connection, load("sqlite"))
        SqliteRunner(connection).run(arrange([key_unit(name) for name in sorted(NAMES)]))
        filled = len(vfs.operations)
        apply_to_sqlite(connection, [*load("sqlite"), *LATER])
        connection.close()
    return vfs.operations, filled


def crashes(moment: int) -> Iterator[Survival]:
    yield everything()
    yield nothing()
    for number in range(SIZES.migration_rounds):
        yield torn(f"{moment}/{number}")


def recover(folder: Path) -> bytes:
    """Open what a crash left, and return the digest of the database as SQLite repairs it."""
    connection = open_connection(str(folder / DATABASE))
    try:
        return hashlib.sha256(connection.serialize("main")).digest()
    finally:
        connection.close()


def is_new(image: Image, folder: Path, seen: set[tuple[bytes, bool]], *, is_filled: bool) -> bool:
    """Whether no crash before left the same: what is migrated would be the same, too.

    In CI also if SQLite repairs it to the same database, byte for byte.
    """
    if (case := (digest_of(image), is_filled)) in seen:
        return False
    seen.add(case)
    if SIZES.migrates_every_crash:
        return True
    write_image(image, folder)
    if (repaired := (recover(folder), is_filled)) in seen:
        return False
    seen.add(repaired)
    return True


def check_crash(folder: Path, whole: list[tuple[object, ...]], *, is_filled: bool) -> None:
    """Migrate what a crash left: it becomes whole, keeps its rows, and stays as it is."""
    migrate_file(folder / DATABASE)
    assert describe_file(folder / DATABASE) == whole
    assert migrate_file(folder / DATABASE) == []
    connection = apsw.Connection(str(folder / DATABASE))
    found = read_survivors(connection).keys
    connection.close()
    assert found in ((NAMES,) if is_filled else (NAMES, set()))


def test_a_migration_crashed_at_any_operation_is_finished_by_the_next(
    scratch: Path, figures: Callable[[str], None]
) -> None:
    """T10: kill, power loss and torn writes at every operation of the disk; no row is lost."""
    operations, filled = record(scratch)
    whole = describe_file(scratch / DATABASE)
    disk, count, seen = Disk(), 0, set[tuple[bytes, bool]]()
    for moment, operation in enumerate(operations):
        is_filled = moment >= filled
        for survival in crashes(moment) if moment % SIZES.migration_stride == 0 else ():
            image = disk.image(survival)
            count += 1
            if is_new(image, scratch / "recovered", seen, is_filled=is_filled):
                write_image(image, scratch / "crashed")
                check_crash(scratch / "crashed", whole, is_filled=is_filled)
        disk.play(operation)
    figures(f"T10 SQLite: {count:,} crashes at {len(operations):,} operations, all finished")
