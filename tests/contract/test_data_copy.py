"""A copy of a SQLite database in PostgreSQL: everything, once, or a reason why not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import asyncpg
import pytest

from clarion.app.tables import COPIED, TABLES
from clarion.errors import CommandFailed
from clarion.store.copying.data_copy import Copied, DataCopy, Watch
from clarion.store.copying.source import Source
from clarion.store.copying.tables import Checksum, CopiedTable
from clarion.store.copying.target import Target
from clarion.store.migrations.plan import apply_to_postgres, apply_to_sqlite
from tests.filling import fill_sqlite, read_postgres, read_sqlite

ROWS = 9
BATCH_ROWS = 4
TABLES_OF_SQLITE = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
)
TABLES_OF_POSTGRES = """SELECT table_name FROM information_schema.tables
WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"""


class Interrupted(Exception):
    """The copy ends here."""


class Steps:
    """What a copy reports, and an end after so many reports."""

    def __init__(self, end_after: int = 0) -> None:
        self._left = end_after
        self.copied: dict[str, int] = {}
        self.verified: dict[str, int] = {}
        self.restarts = 0

    @property
    def watch(self) -> Watch:
        return Watch(self._note(self.copied), self._note(self.verified), self._restart)

    def _note(self, counts: dict[str, int]) -> Callable[[CopiedTable, int], None]:
        def note(table: CopiedTable, rows: int) -> None:
            counts[table.name] = counts.get(table.name, 0) + rows
            self._left -= 1
            if self._left == 0:
                raise Interrupted

        return note

    def _restart(self) -> None:
        self.restarts += 1


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with rows in every table."""
    path = str(tmp_path / "clarion.db")
    fill_sqlite(path, None, 0)
    with opened(path) as source:
        tables = source.list_tables()
    Path(path).unlink()
    fill_sqlite(path, tables, ROWS)
    return path


@pytest.fixture
async def connection(postgres_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_database)
    yield connection
    await connection.close()


@contextmanager
def opened(path: str) -> Iterator[Source]:
    source = Source.open(path, COPIED)
    try:
        yield source
    finally:
        source.close()


async def copy(path: str, connection: asyncpg.Connection, steps: Steps | None = None) -> Copied:
    with opened(path) as source:
        made = DataCopy(source, Target(connection), (steps or Steps()).watch, batch_rows=BATCH_ROWS)
        done = await made.run()
    assert done is not None
    return done


async def test_every_table_is_copied_or_left_out_with_a_reason(
    path: str, connection: asyncpg.Connection
) -> None:
    """A new table is copied as it is; one that must not be says so in its declaration."""
    await apply_to_postgres(connection)
    with opened(path) as source:
        tables = source.list_tables()
    file = apsw.Connection(path)
    on_sqlite = {str(name) for (name,) in file.execute(TABLES_OF_SQLITE)}
    file.close()
    on_postgres = {row[0] for row in await connection.fetch(TABLES_OF_POSTGRES)}
    assert on_sqlite == on_postgres
    assert {each.name for each in TABLES} == on_sqlite
    left_out = {each.name for each in TABLES if each.not_copied}
    assert {table.name for table in tables} == on_sqlite - left_out
    assert all(table.key for table in tables)
    await Target(connection).check_columns(tables)


async def test_all_rows_of_all_tables_are_the_same(
    path: str, connection: asyncpg.Connection
) -> None:
    steps = Steps()
    done = await copy(path, connection, steps)
    with opened(path) as source:
        tables = source.list_tables()
    for table in tables:
        expected = read_sqlite(path, table)
        assert len(expected) == ROWS, table.name
        assert await read_postgres(connection, table) == expected, table.name
    assert done == Copied(len(tables), ROWS * len(tables), 0)
    assert steps.copied == steps.verified == {table.name: ROWS for table in tables}
    rows = await connection.fetch("SELECT id, seal, created_at FROM installation")
    assert list(map(tuple, rows)) == [("here", b"\x02\xaa\xbb\xcc\xdd", 7)]
    assert await connection.fetchval("SELECT COUNT(*) FROM copied_tables") == 0


async def test_triggers_work_again_afterwards(path: str, connection: asyncpg.Connection) -> None:
    await copy(path, connection)
    count = "SELECT COUNT(*) FROM user_attributes WHERE app_id = 'new'"
    await connection.execute(
        """INSERT INTO users SELECT (jsonb_populate_record(users,
        '{"app_id": "new", "email_key": null, "attributes": "{\\"plan\\": \\"gold\\"}"}')).*
        FROM users LIMIT 1"""
    )
    assert await connection.fetchval(count) == 1


async def test_a_second_run_finds_everything_done(
    path: str, connection: asyncpg.Connection
) -> None:
    await copy(path, connection)
    with opened(path) as source:
        assert await DataCopy(source, Target(connection), Steps().watch).run() is None


@pytest.mark.parametrize("opened_by_a_server", ["source", "target"])
async def test_a_database_that_was_used_since_is_not_taken_for_the_copy(
    path: str, connection: asyncpg.Connection, opened_by_a_server: str
) -> None:
    """Somebody went back to SQLite, or works with the copy: nothing may be called done."""
    await copy(path, connection)
    void = "UPDATE installation SET copy_id = NULL"
    if opened_by_a_server == "source":
        file = apsw.Connection(path)
        file.execute(void)
        file.close()
    else:
        await connection.execute(void)
    with pytest.raises(CommandFailed, match="not empty"):
        await copy(path, connection)


def test_a_file_is_moved_away_and_replaces_none(path: str) -> None:
    for end in ("", "2"):
        moved = Source.open(path, COPIED).move_away()
        assert str(moved) == f"{path}.migrated{end}"
        assert not Path(path).exists()
        fill_sqlite(path, None, 0)
    assert Path(f"{path}.migrated").exists()


@pytest.mark.parametrize("reports", [1, 2, 17, 130, 180])
async def test_an_interrupted_copy_goes_on_where_it_was(
    path: str, connection: asyncpg.Connection, reports: int
) -> None:
    with pytest.raises(Interrupted):
        await copy(path, connection, Steps(reports))
    steps = Steps()
    done = await copy(path, connection, steps)
    with opened(path) as source:
        tables = source.list_tables()
    for table in tables:
        assert await read_postgres(connection, table) == read_sqlite(path, table), table.name
    assert steps.restarts == 0
    assert set(steps.copied.values()) == {ROWS}
    assert done.rows == ROWS * done.tables


async def test_a_source_that_was_used_since_is_copied_anew(
    path: str, connection: asyncpg.Connection
) -> None:
    """A server voids the copy when it opens the database."""
    with pytest.raises(Interrupted):
        await copy(path, connection, Steps(100))
    file = apsw.Connection(path)
    file.execute("UPDATE installation SET copy_id = NULL")
    file.execute("DELETE FROM api_keys")
    file.close()
    steps = Steps()
    await copy(path, connection, steps)
    assert steps.restarts == 1
    assert await connection.fetchval("SELECT COUNT(*) FROM api_keys") == 0


async def test_a_database_with_rows_is_refused(path: str, connection: asyncpg.Connection) -> None:
    await apply_to_postgres(connection)
    await connection.execute("INSERT INTO retired_keys (id, retired_at) VALUES ('x', 1)")
    with pytest.raises(CommandFailed, match="not empty: retired_keys has rows"):
        await copy(path, connection)
    assert await connection.fetchval("SELECT COUNT(*) FROM retired_keys") == 1


async def test_an_unfinished_copy_of_another_database_is_refused(
    path: str, connection: asyncpg.Connection
) -> None:
    with pytest.raises(Interrupted):
        await copy(path, connection, Steps(50))
    file = apsw.Connection(path)
    file.execute("UPDATE installation SET id = 'there', copy_id = NULL")
    file.close()
    with pytest.raises(CommandFailed, match="not empty"):
        await copy(path, connection)


async def test_two_copies_at_once_are_refused(
    connection: asyncpg.Connection, postgres_database: str
) -> None:
    other = await asyncpg.connect(postgres_database)
    await Target(other).prepare()
    with pytest.raises(CommandFailed, match="Another `clarion migrate-data`"):
        await Target(connection, lock_wait_s=0.1).prepare()
    await other.close()


async def test_a_copy_waits_until_one_that_was_killed_is_gone(
    connection: asyncpg.Connection, postgres_database: str
) -> None:
    other = await asyncpg.connect(postgres_database)
    await Target(other).prepare()
    asyncio.get_running_loop().call_later(0.2, other.terminate)
    await Target(connection).prepare()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE api_keys SET label = label || '!' WHERE id = (SELECT MIN(id) FROM api_keys)",
        "DELETE FROM messages WHERE id = (SELECT MIN(id) FROM messages)",
        "INSERT INTO retired_keys (id, retired_at) VALUES ('new', 1)",
    ],
)
async def test_a_copy_that_differs_is_found(
    path: str, connection: asyncpg.Connection, change: str
) -> None:
    """The negative control of the checksums: one row was changed, lost or added."""
    with opened(path) as source:
        reports = len(source.list_tables())
    batches = -(-ROWS // BATCH_ROWS)
    with pytest.raises(Interrupted):
        await copy(path, connection, Steps(reports * (1 + batches)))
    await connection.execute(change)
    with pytest.raises(CommandFailed, match=r"The rows of \w+ differ"):
        await copy(path, connection)
    assert await connection.fetchval("SELECT COUNT(*) FROM installation") == 0


async def test_characters_that_postgresql_cannot_hold_are_replaced_and_counted(
    tmp_path: Path, connection: asyncpg.Connection
) -> None:
    path = str(tmp_path / "clarion.db")
    fill_sqlite(path, None, 0)
    file = apsw.Connection(path)
    file.execute(
        "INSERT INTO api_keys (id, app_id, label, scopes, secret_hash, created_at) "
        "VALUES ('k', 'app', ?, '[]', X'00', 1)",
        ("a\x00b",),
    )
    file.close()
    assert (await copy(path, connection)).changed_texts == 1
    assert await connection.fetchval("SELECT label FROM api_keys") == "a\ufffdb"


def test_a_database_in_use_is_refused(path: str) -> None:
    """A reader is enough: it may be a server."""
    reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("SELECT COUNT(*) FROM apps").fetchall()
    with pytest.raises(CommandFailed, match=r"uses .* Stop it"):
        Source.open(path, COPIED)
    reader.close()
    with opened(path):
        other = apsw.Connection(path)
        with pytest.raises(apsw.BusyError):
            other.execute("SELECT COUNT(*) FROM apps").fetchall()
        other.close()


def test_a_database_that_lacks_migrations_is_brought_up_to_date(tmp_path: Path) -> None:
    path = str(tmp_path / "clarion.db")
    file = apsw.Connection(path)
    file.execute("PRAGMA journal_mode=WAL").fetchall()
    file.close()
    with opened(path) as source:
        assert {"apps", "users"} <= {table.name for table in source.list_tables()}
        assert source.read_installation() is None
    file = apsw.Connection(path)
    assert apply_to_sqlite(file) == []
    file.close()


def test_the_checksum_depends_on_every_value_and_not_on_the_order() -> None:
    rows = [("a", 1, b"x", None), ("b", 2, b"", 1.5)]
    whole = Checksum().add(rows)
    assert whole == Checksum().add(rows[1:]).add(rows[:1])
    assert whole.count == 2
    for other in (("a", 1, b"y", None), ("a", 2, b"x", None), ("a", 1, "x", None)):
        assert Checksum().add([other, rows[1]]) != whole
    assert Checksum(whole.count, int(whole.hex, 16)) == whole


def test_the_memory_of_a_batch_is_limited(tmp_path: Path) -> None:
    """Large rows are read a few at a time, however many rows a batch may have."""
    path = str(tmp_path / "clarion.db")
    fill_sqlite(path, None, 0)
    file = apsw.Connection(path)
    file.executemany(
        "INSERT INTO idempotency_keys (app_id, key, fingerprint, answer, created_at, expires_at) "
        "VALUES ('app', ?, X'00', ?, 1, 1)",
        [(str(n), bytes(500_000)) for n in range(20)],
    )
    file.close()
    with opened(path) as source:
        (table,) = [each for each in source.list_tables() if each.name == "idempotency_keys"]
        sizes = [len(batch) for batch in source.read(table, None, 1_000)]
    assert sizes == [5, 5, 5, 5]
