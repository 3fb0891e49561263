"""T05, T06: a disk that fails or is full under the real runner."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from clarion.store.batch import arrange
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.child import Finished, Trouble, answer
from clarion.store.sqlite.runner import SqliteRunner, open_connection
from clarion.store.statement import Unit
from tests.faults.disk_faults import (
    FailingSync,
    FaultyVfs,
    RefusingWrites,
    SmallDisk,
    is_shared_memory,
)
from tests.faults.scenario import DATABASE, Survivors, key_unit, read_survivors
from tests.faults.sizes import CRASH, SIZES

pytestmark = CRASH

UNITS_A_BATCH = 5
BATCHES_AT_MOST = 1_000


@contextmanager
def opened(folder: Path, vfs: str | None = None) -> Iterator[apsw.Connection]:
    """A new database that is checkpointed often."""
    connection = open_connection(str(folder / DATABASE), vfs=vfs)
    apply_to_sqlite(connection)
    connection.execute("PRAGMA wal_autocheckpoint=20").fetchall()
    yield connection
    connection.close()


@contextmanager
def opened_with_failing_sync(folder: Path, number: int) -> Iterator[apsw.Connection]:
    with FaultyVfs(f"faulty-{folder}", lambda: None) as vfs, opened(folder, vfs.name) as connection:
        vfs.before_sync = FailingSync(number)
        yield connection


def found_in(folder: Path) -> Survivors:
    with closing(apsw.Connection(str(folder / DATABASE))) as connection:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        return read_survivors(connection)


def names(units: list[Unit]) -> set[str]:
    return {unit.key for unit in units}


@dataclass(kw_only=True)
class Work:
    """Batches run one by one, and what was said of each."""

    runner: SqliteRunner
    batches: int = 0
    done: set[str] = field(default_factory=set)

    def next_batch(self, size_bytes: int = 300) -> list[Unit]:
        self.batches += 1
        return [
            key_unit(f"{self.batches}-{number}", size_bytes=size_bytes)
            for number in range(UNITS_A_BATCH)
        ]

    def run(self, units: list[Unit]) -> Trouble | None:
        said = answer(self.runner, arrange(units))
        if isinstance(said, Trouble):
            return said
        assert isinstance(said, Finished)
        assert not said.report.failed
        assert not said.report.refused
        self.done |= names(units)
        return None

    def run_until_trouble(self, size_bytes: int = 300) -> tuple[list[Unit], Trouble]:
        while self.batches < BATCHES_AT_MOST:
            units = self.next_batch(size_bytes)
            if trouble := self.run(units):
                return units, trouble
        raise AssertionError("the fault never came")


@pytest.mark.parametrize("number", range(1, SIZES.failing_syncs + 1))
def test_a_batch_whose_sync_failed_is_not_reported_done(tmp_path: Path, number: int) -> None:
    """T05: the store is broken then; what was done before is there, the batch whole or not."""
    with opened_with_failing_sync(tmp_path, number) as connection:
        work = Work(runner=SqliteRunner(connection))
        units, trouble = work.run_until_trouble()
    found = found_in(tmp_path)
    assert trouble.kind == "broken"
    assert found.claims == found.keys
    assert found.keys - work.done in (set(), names(units))
    assert found.keys >= work.done


def test_a_full_disk_refuses_batches_and_recovers(tmp_path: Path) -> None:
    """T06: wherever in a batch the disk is full, nothing of it stays; with room it goes in."""
    disk = SmallDisk()
    with opened(tmp_path) as connection, RefusingWrites(disk.refuses):
        work = Work(runner=SqliteRunner(connection))
        for room in range(SIZES.disk_full_cycles):
            disk.room = room
            units, trouble = work.run_until_trouble()
            assert trouble.kind == "full"
            assert read_survivors(connection).keys == work.done
            disk.room = None
            assert work.run(units) is None
    assert found_in(tmp_path) == Survivors(frozenset(work.done), frozenset(work.done))


def test_a_database_at_its_largest_size_refuses_and_recovers(tmp_path: Path) -> None:
    """T06: the same with an SQLITE_FULL that is SQLite's own."""
    with opened(tmp_path) as connection:
        work = Work(runner=SqliteRunner(connection))
        for pages in range(40, 40 + 10 * SIZES.disk_full_cycles, 10):
            connection.execute(f"PRAGMA max_page_count={pages}").fetchall()
            units, trouble = work.run_until_trouble()
            assert trouble.kind == "full"
            assert read_survivors(connection).keys == work.done
        connection.execute("PRAGMA max_page_count=100000").fetchall()
        assert work.run(units) is None
    assert found_in(tmp_path).keys == work.done


def test_shared_memory_that_cannot_grow_is_waited_out(tmp_path: Path) -> None:
    """T06: a disk too full for the WAL's index leaves a batch unknown, but the store whole.

    The batch's frames are on the disk and synced by then, so a crash would bring it back: it is
    not refused as nothing stored. The next commit writes over it.
    """
    with opened(tmp_path) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        work = Work(runner=SqliteRunner(connection))
        with RefusingWrites(is_shared_memory) as writes:
            units, trouble = work.run_until_trouble(size_bytes=60_000)
        assert writes.refused > 0
        assert trouble.kind == "unavailable"
        assert read_survivors(connection).keys == work.done
        assert work.run(units) is None
    assert found_in(tmp_path).keys == work.done
