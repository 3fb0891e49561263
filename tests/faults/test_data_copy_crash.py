"""`clarion migrate-data` is killed on the way, again and again, and then runs to its end."""

import signal
from collections.abc import Callable
from pathlib import Path

import asyncpg

from clarion.app.tables import COPIED
from clarion.store.copying.source import Source
from clarion.store.copying.tables import CopiedTable
from clarion.store.migrations.plan import apply_to_postgres
from tests.faults.copying import copy_database
from tests.faults.migrating import run_apart
from tests.faults.sizes import CRASH
from tests.filling import fill_sqlite, read_postgres, read_sqlite

pytestmark = CRASH

ROWS = 10
KILLED_AT_MOST = 200
COUNT = "SELECT COALESCE(SUM(row_count), 0) FROM copied_tables"
# Statements between two kills: not a multiple of what a table takes, so that each round ends
# somewhere else in the work on a table.
STRIDE = 37


def fill(path: str) -> list[CopiedTable]:
    fill_sqlite(path, None, 0)
    source = Source.open(path, COPIED)
    tables = source.list_tables()
    source.close()
    Path(path).unlink()
    fill_sqlite(path, tables, ROWS)
    return tables


async def test_a_copy_that_is_killed_again_and_again_is_complete_in_the_end(
    tmp_path: Path, postgres_database: str, figures: Callable[[str], None]
) -> None:
    """Each run goes on after the last batch that was committed: no row is lost or copied twice."""
    path = str(tmp_path / "clarion.db")
    tables = fill(path)
    connection = await asyncpg.connect(postgres_database)
    await apply_to_postgres(connection)
    counts = [0]
    # When everything is copied, what is left is verified in one run.
    while counts[-1] < ROWS * len(tables) and len(counts) < KILLED_AT_MOST:
        ended = await run_apart(copy_database, path, postgres_database, STRIDE)
        assert ended == -signal.SIGKILL
        counts.append(await connection.fetchval(COUNT))
    assert counts == sorted(counts), "a run began anew"
    assert len(counts) > len(tables) / STRIDE
    assert await run_apart(copy_database, path, postgres_database, 0) == 0
    for table in tables:
        assert await read_postgres(connection, table) == read_sqlite(path, table), table.name
    assert await connection.fetchval("SELECT COUNT(*) FROM installation") == 1
    await connection.close()
    figures(f"migrate-data: killed {len(counts) - 1} times, {ROWS * len(tables)} rows complete")
