"""Checkpoints beside the commits: the log stays short, and readers do not stop the commits."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from clarion.store.sqlite.checkpoints import Checkpoints
from clarion.store.sqlite.runner import open_connection

PAGE_BYTES = 4096
COPIED, LONG = 20, 60
# A commit of the test writes a few pages.
LONGEST_BYTES = (2 * LONG + COPIED) * PAGE_BYTES


@contextmanager
def writing(path: Path) -> Iterator[tuple[Callable[[int], None], Checkpoints]]:
    """Return a function that commits a row and then looks after the log, as the writer does."""
    connection = open_connection(str(path))
    connection.execute("CREATE TABLE t (number INTEGER PRIMARY KEY, filling BLOB)")
    beside = open_connection(str(path))
    checkpoints = Checkpoints(connection, beside, copied_pages=COPIED, long_pages=LONG)

    def commit(number: int) -> None:
        connection.execute("INSERT INTO t VALUES (?, zeroblob(6000))", (number,))
        checkpoints.shorten()

    yield commit, checkpoints
    checkpoints.close()
    connection.close()


def size_of_log(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def count_without_log(path: Path) -> int:
    """Return how many rows the file of the database has by itself."""
    file = apsw.Connection(
        f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        return int(file.execute("SELECT COUNT(*) FROM t").get)
    finally:
        file.close()


def test_the_log_stays_short_while_commits_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with writing(path) as (commit, _):
        sizes = []
        for number in range(500):
            commit(number)
            sizes.append(size_of_log(path))
        assert max(sizes) <= LONGEST_BYTES
    assert count_without_log(path) == 500


async def test_the_thread_copies_without_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with writing(path) as (commit, _):
        for number in range(COPIED):  # too few for the writer to do it
            commit(number)
        async with asyncio.timeout(10):
            while count_without_log(path) == 0:  # noqa: ASYNC110 - another thread writes the file
                await asyncio.sleep(0.01)


def test_a_reader_of_the_log_delays_its_end_but_no_commit(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with writing(path) as (commit, _):
        commit(0)
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN")
        assert reader.execute("SELECT COUNT(*) FROM t").get == 1
        for number in range(1, 200):
            commit(number)
        assert reader.execute("SELECT COUNT(*) FROM t").get == 1
        grown = size_of_log(path)
        assert grown > LONGEST_BYTES
        reader.execute("COMMIT")
        for number in range(200, 400):
            commit(number)
        # The log began anew within what it had grown to.
        assert size_of_log(path) <= grown + LONGEST_BYTES
        reader.close()
    assert count_without_log(path) == 400
