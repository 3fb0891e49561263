"""Reads that take long: they keep nothing else waiting, and end in time."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from clarion.errors import Overloaded, ReadTooSlow
from clarion.store.engine import Engine
from clarion.store.opening import migrate, open_engine, sqlite_path
from clarion.store.slots import SlowReadLimits
from clarion.store.statement import Statement, statement
from tests.contract.conftest import nothing_left

# Minutes, on either engine. The app is a parameter, as it is of every slow read.
SLOW_ON_SQLITE = """WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
SELECT COUNT(*), :app_id FROM numbers"""
SLOW_ON_POSTGRES = "SELECT pg_sleep(120), CAST(:app_id AS TEXT)"
QUICK = statement("quick", "SELECT CAST(:app_id AS TEXT)")


@pytest.fixture
def slow(database_url: str) -> Statement:
    return statement("slow", SLOW_ON_SQLITE if sqlite_path(database_url) else SLOW_ON_POSTGRES)


@pytest.fixture
def limits() -> SlowReadLimits:
    """A test that does not wait for a limit takes those of production."""
    return SlowReadLimits()


@pytest.fixture
async def engine(database_url: str, limits: SlowReadLimits) -> AsyncIterator[Engine]:
    await migrate(database_url)
    async with nothing_left():
        engine = await open_engine(
            database_url, waiting_limit=9, batch_limit=9, on_broken=print, slow_reads=limits
        )
        yield engine
        await engine.close()


@pytest.fixture
async def running(engine: Engine, slow: Statement) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Eight slow reads of four apps, two a piece: more than there are connections."""
    reads = [engine.fetch_slowly(slow, app_id=f"app-{n % 4}") for n in range(8)]
    tasks = [asyncio.create_task(read) for read in reads]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in tasks), tasks
    yield list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.usefixtures("running")
async def test_slow_reads_keep_nothing_else_waiting(engine: Engine) -> None:
    async with asyncio.timeout(60):
        await engine.check()
        assert list(await engine.fetch(QUICK, app_id="a")) == [("a",)]
        assert list(await engine.fetch_in_background(QUICK, app_id="a")) == [("a",)]


async def test_a_slow_read_that_is_cancelled_makes_room(
    engine: Engine, running: list[asyncio.Task[object]]
) -> None:
    for task in running:
        task.cancel()
    async with asyncio.timeout(60):
        assert list(await engine.fetch_slowly(QUICK, app_id="app-0")) == [("app-0",)]


async def test_nothing_is_logged_of_a_read_that_was_cancelled(
    engine: Engine, slow: Statement
) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about))
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await engine.fetch_slowly(slow, app_id="a")
    gc.collect()
    assert failures == []


@pytest.mark.parametrize("limits", [SlowReadLimits(read_s=0.3, wait_s=30)])
async def test_a_slow_read_ends_at_its_limit(engine: Engine, slow: Statement) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(ReadTooSlow) as raised:
            await engine.fetch_slowly(slow, app_id="a")
        assert (raised.value.status, raised.value.code) == (503, "read_too_slow")
        assert list(await engine.fetch_slowly(QUICK, app_id="a")) == [("a",)]


@pytest.mark.parametrize("limits", [SlowReadLimits(read_s=30, wait_s=0.2)])
@pytest.mark.usefixtures("running")
async def test_one_that_finds_no_connection_in_time_is_refused(engine: Engine) -> None:
    with pytest.raises(Overloaded, match="long reads"):
        await engine.fetch_slowly(QUICK, app_id="another")


@pytest.mark.parametrize("limits", [SlowReadLimits(read_s=0.5, wait_s=30)])
async def test_many_slow_reads_of_one_app_keep_another_waiting_for_one_of_them(
    engine: Engine, slow: Statement
) -> None:
    done: list[str] = []

    async def read(each: Statement, app_id: str) -> None:
        await asyncio.gather(engine.fetch_slowly(each, app_id=app_id), return_exceptions=True)
        done.append(app_id)

    async with asyncio.TaskGroup() as group:
        noisy = [group.create_task(read(slow, "noisy")) for _ in range(20)]
        await asyncio.sleep(0.1)
        await read(QUICK, "quiet")
        assert done.count("noisy") <= 1
        for task in noisy:
            task.cancel()
