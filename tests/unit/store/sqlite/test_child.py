"""The writer process: what its errors mean, whose its answers are, and that it ends."""

import asyncio
import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import msgspec
import pytest

from clarion.errors import StoreUnavailable
from clarion.store.batch import Done
from clarion.store.sqlite.child import Trouble, classify
from clarion.store.sqlite.process import WriterProcess, begin_writer
from clarion.store.statement import Unit, statement
from clarion.system.child_process import write
from tests.contract.conftest import nothing_left


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.FullError, "full"),
        (apsw.BusyError, "unavailable"),
        (apsw.LockedError, "unavailable"),
        (apsw.NoMemError, "unavailable"),
        (apsw.IOError, "broken"),
        (apsw.CorruptError, "broken"),
        (apsw.NotADBError, "broken"),
    ],
)
def test_what_an_error_means_for_the_callers(error: type[apsw.Error], kind: str) -> None:
    trouble = classify(error("with a value in it: hunter2"))
    assert (trouble.kind, trouble.message) == (kind, error.__name__)


@pytest.mark.parametrize("path", ["missing/folder/x.db", "not-a-database"])
async def test_a_writer_that_cannot_open_the_database_leaves_nothing_behind(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "not-a-database").write_text("nonsense " * 1_000)
    broken: list[str] = []
    async with nothing_left():
        with pytest.raises(StoreUnavailable):
            await WriterProcess.start(str(tmp_path / path), broken.append)
    assert broken == []


async def test_a_process_that_was_begun_opens_the_database_when_it_is_told_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"
    async with nothing_left():
        begun = await begin_writer()
        assert not path.exists()
        writer = await WriterProcess.start(str(path), pytest.fail, begun)
        assert path.exists()
        await writer.close()


async def test_a_process_that_was_begun_for_nothing_ends_with_its_socket() -> None:
    async with nothing_left():
        begun = await begin_writer()
        begun.writer.close()
        assert await begun.process.wait() == 0


ECHO = statement("echo", "INSERT INTO numbers (number) VALUES (:number) RETURNING number")
CANCELLED = 10_000


@pytest.fixture
async def broken() -> list[str]:
    return []


@pytest.fixture
async def writer(tmp_path: Path, broken: list[str]) -> AsyncIterator[WriterProcess]:
    path = str(tmp_path / "numbers.db")
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    connection.close()
    async with nothing_left():
        writer = await WriterProcess.start(path, broken.append)
        yield writer
        await writer.close()


async def echo(writer: WriterProcess, number: int) -> int:
    """Write a number, and return the one that the writer has written."""
    (outcome,) = await writer.run([Unit("", (ECHO.step(number=number),))])
    assert isinstance(outcome, Done)
    return int(outcome.rows[0][0][0])


@pytest.mark.timeout(300)
async def test_every_caller_gets_its_own_answer_whatever_is_cancelled(
    writer: WriterProcess, broken: list[str]
) -> None:
    """Cancelled before its first step, at each later one, and when its answer has arrived."""
    for number in range(CANCELLED):
        task = asyncio.create_task(writer.scrub(1) if number % 10 == 0 else echo(writer, number))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        if number % 3 == 0:
            await asyncio.sleep(random.random() / 2_000)
        task.cancel()
        if number % 20 == 0:
            assert await echo(writer, -1 - number) == -1 - number
        await asyncio.wait([task])
        if not task.cancelled() and number % 10:
            assert task.result() == number
    assert broken == []


async def test_the_answer_to_another_question_breaks_the_writer(
    writer: WriterProcess, broken: list[str]
) -> None:
    next(writer._numbers)  # the question that the process is asked now has no caller
    write(writer._writer, msgspec.msgpack.encode((1, 1)))
    with pytest.raises(StoreUnavailable):
        await echo(writer, 7)
    with pytest.raises(StoreUnavailable):
        await echo(writer, 8)
    assert broken == ["the writer process answered another question"]


async def test_a_disk_that_failed_is_noticed_though_nobody_waits_for_the_answer(
    writer: WriterProcess, broken: list[str]
) -> None:
    task = asyncio.create_task(echo(writer, 7))
    await asyncio.sleep(0)
    task.cancel()
    writer._asked[0][1].cancel()
    writer._take(writer._asked[0][0], Trouble("broken", "IOError"))
    with pytest.raises(StoreUnavailable):
        await echo(writer, 8)
    assert broken == ["IOError"]


# Has a batch written, and asks for another one when it is told to.
SERVER = """
import asyncio, sys
from clarion.store.sqlite.process import WriterProcess
from clarion.store.statement import Unit, statement
insert = statement("insert", "INSERT INTO numbers (number) VALUES (:number)")
async def main():
    writer = await WriterProcess.start(sys.argv[1], print)
    await writer.run([Unit("", (insert.step(number=1),))])
    print(writer._process.pid, flush=True)
    sys.stdin.readline()
    asked = asyncio.create_task(writer.run([Unit("", (insert.step(number=2),))]))
    await asyncio.sleep(0)
    print("asked", flush=True)
    await asked
asyncio.run(main())
"""


@pytest.mark.usefixtures("writer")  # makes the database
def test_what_a_server_that_was_killed_has_asked_for_is_not_begun(tmp_path: Path) -> None:
    """Another server may serve by then, and what was decided before its start comes too late."""
    path = str(tmp_path / "numbers.db")
    command = [sys.executable, "-c", SERVER, path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        child = int(server.stdout.readline())
        descriptor, ended = os.pidfd_open(child), select.poll()
        ended.register(descriptor, select.POLLIN)
        os.kill(child, signal.SIGSTOP)
        server.stdin.write(b"\n")
        assert server.stdout.readline() == b"asked\n"
        server.kill()
    os.kill(child, signal.SIGCONT)
    assert ended.poll(60_000)
    os.close(descriptor)
    with contextlib.closing(apsw.Connection(path)) as connection:
        assert connection.execute("SELECT number FROM numbers").fetchall() == [(1,)]


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async with nothing_left():
        begun = await begin_writer()
        path = str(tmp_path / "new.db")
        starting = asyncio.create_task(WriterProcess.start(path, pytest.fail, begun))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
