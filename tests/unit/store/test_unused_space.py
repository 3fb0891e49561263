"""Unused space is cleared, and nothing else: the database stays whole."""

import random
from pathlib import Path

import apsw
import pytest

from clarion.store.sqlite.unused_space import UnusedSpace, find_gap

MARK = b"qzmarkqz"


def fill(path: Path, *, seed: int, mode: str = "ON") -> apsw.Connection:
    """Write, change and delete rows of many sizes, so that pages are split and joined."""
    connection = apsw.Connection(str(path))
    connection.execute(
        f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA secure_delete={mode}"
    ).fetchall()
    connection.execute(
        "CREATE TABLE a (k TEXT PRIMARY KEY, v TEXT, w BLOB) WITHOUT ROWID;"
        "CREATE TABLE b (k TEXT PRIMARY KEY, v TEXT); CREATE INDEX c ON b (v)"
    )
    chance = random.Random(seed)
    for n in range(3_000):
        key, text = f"{chance.random()}", MARK.decode() * chance.randint(1, 40)
        whose = text if n % 2 else "x" * len(text)
        connection.execute("INSERT INTO a VALUES (?, ?, ?)", (key, whose, bytes(n % 9_000)))
        connection.execute("INSERT INTO b VALUES (?, ?)", (key + whose, whose))
    for table in ("a", "b"):
        connection.execute(f"DELETE FROM {table} WHERE v LIKE '{MARK.decode()}%'")  # noqa: S608
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return connection


def clear_all(path: Path, count: int) -> int:
    unused, cleared = UnusedSpace(str(path)), 0
    page: int | None = 1
    while page is not None:
        page, is_changed = unused.clear(page, count)
        cleared += is_changed
    return cleared


@pytest.mark.parametrize("seed", range(3))
def test_copies_of_rows_that_were_moved_are_cleared(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "file.db"
    connection = fill(path, seed=seed)
    before = connection.execute("SELECT k, v, w FROM a ORDER BY k").fetchall()
    assert MARK in path.read_bytes(), "without clearing, copies are left"
    assert clear_all(path, 64)
    assert MARK not in path.read_bytes()
    connection.execute("PRAGMA shrink_memory")
    assert connection.execute("SELECT k, v, w FROM a ORDER BY k").fetchall() == before
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute("UPDATE b SET v = v || 'y'")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert MARK not in path.read_bytes()
    connection.close()


def test_without_secure_delete_deleted_rows_would_be_left(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    connection = fill(path, seed=1, mode="OFF")
    clear_all(path, 64)
    assert MARK in path.read_bytes()
    connection.close()


def test_what_is_clear_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    connection = fill(path, seed=1)
    assert clear_all(path, 5_000) == 1
    assert clear_all(path, 5_000) == 0
    connection.close()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"\x0d\0\0\0\x02\x0f\x00" + bytes(4089), (12, 3840)),
        (b"\x02\0\0\0\x00\x00\x00" + bytes(4089), (0, 0)),  # begins at 65,536: not in this page
        (b"\x00\0\0\0\x02\x0f\x00" + bytes(4089), (0, 0)),  # an overflow page
        (b"\x0d\0\0\x0f\xff\x00\x10" + bytes(4089), (0, 0)),  # more pointers than fit
    ],
)
def test_only_what_lies_between_pointers_and_cells_is_unused(
    page: bytes, expected: tuple[int, int]
) -> None:
    assert find_gap(page, 0, 0, 4096) == expected
