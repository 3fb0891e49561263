"""T12: PostgreSQL is killed or stopped under load; what was acknowledged is there afterwards."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from clarion.errors import StoreUnavailable
from clarion.store.group_commit import GroupCommit
from clarion.store.postgres.engine import SERVER_SETTINGS, PostgresEngine, migrate
from clarion.store.postgres.runner import PostgresRunner
from clarion.store.statement import Unit
from tests.faults.scenario import Survivors, key_unit
from tests.faults.sizes import CRASH, SIZES
from tests.servers import PostgresServer

pytestmark = CRASH

UNITS_A_KILL = 1_000
WAIT_LIMIT_S = 60.0
# What is not synced at the commit is left to the WAL writer; here it comes late enough to show.
LATE_WAL_WRITER = {"wal_writer_delay": "10s", "wal_writer_flush_after": "64MB"}

Write = Callable[[Unit], Awaitable[object]]
End = Callable[[PostgresServer], None]
# SIGKILL of the postmaster, and the "immediate" and "fast" shutdown.
ENDS: tuple[End, ...] = (PostgresServer.kill, PostgresServer.stop_immediately, PostgresServer.stop)


class Writers:
    """Tasks that each write one unit after another and repeat what was left unknown."""

    def __init__(self, write: Write) -> None:
        self.accepted: set[str] = set()
        self.unknown: set[str] = set()
        self.server_is_up = asyncio.Event()
        self.server_is_up.set()
        self._write = write
        self._progress = asyncio.Event()
        self._is_stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for number in range(SIZES.clients):
                group.create_task(self._work(number))
            yield
            self._is_stopping = True

    async def reach(self, accepted: int) -> None:
        async with asyncio.timeout(WAIT_LIMIT_S):
            while len(self.accepted) < accepted:
                self._progress.clear()
                await self._progress.wait()

    async def _work(self, writer: int) -> None:
        number = 0
        while not self._is_stopping:
            number += 1
            await self._insert(f"{writer}-{number}")

    async def _insert(self, name: str) -> None:
        while name not in self.accepted:
            await self.server_is_up.wait()
            try:
                await self._write(key_unit(name))
            except StoreUnavailable:
                self.unknown.add(name)
            else:
                self.accepted.add(name)
                self._progress.set()


async def end_under_load(
    server: PostgresServer, writers: Writers, ends: Sequence[End] = ENDS
) -> None:
    """End the server in each of these ways in turn, and start it again."""
    async with writers.running():
        for end in itertools.islice(itertools.cycle(ends), SIZES.postgres_kills):
            await writers.reach(len(writers.accepted) + UNITS_A_KILL)
            writers.server_is_up.clear()
            await asyncio.to_thread(end, server)
            await asyncio.to_thread(server.start)
            writers.server_is_up.set()


async def read(url: str) -> Survivors:
    connection = await asyncpg.connect(url)
    try:
        claims = await connection.fetch("SELECT key FROM idempotency_keys")
        keys = await connection.fetch("SELECT label FROM api_keys")
    finally:
        await connection.close()
    return Survivors(frozenset(row[0] for row in claims), frozenset(row[0] for row in keys))


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings=LATE_WAL_WRITER) as server:
        yield server


async def test_a_killed_postgres_has_lost_nothing(
    server: PostgresServer, figures: Callable[[str], None]
) -> None:
    """T12: after every kill and stop all that was acknowledged is there, whole."""
    await migrate(server.url)
    engine = await PostgresEngine.open(server.url, waiting_limit=1000, batch_limit=1000)
    writers = Writers(engine.write)
    await end_under_load(server, writers)
    await engine.close()
    found = await read(server.url)
    figures(
        f"T12 {SIZES.postgres_kills} kills and stops, {len(writers.accepted):,} acknowledged, "
        f"{len(writers.unknown):,} unknown and retried, "
        f"{len(writers.accepted - found.keys):,} lost"
    )
    assert sorted(writers.accepted - found.keys)[:20] == []
    assert found.claims == found.keys


async def test_without_synchronous_commit_work_is_lost(
    server: PostgresServer, figures: Callable[[str], None]
) -> None:
    """T12: the control; the same kills must show losses if commits are not waited for."""
    await migrate(server.url)

    async def connect() -> asyncpg.Connection:
        settings = {**SERVER_SETTINGS, "synchronous_commit": "off"}
        return await asyncpg.connect(server.url, server_settings=settings)

    runner = PostgresRunner(connect)
    commit = GroupCommit(runner, waiting_limit=1000, batch_limit=1000)
    writers = Writers(commit.write)
    await end_under_load(server, writers, [PostgresServer.kill])
    await commit.close()
    await runner.close()
    lost = writers.accepted - (await read(server.url)).keys
    figures(f"T12 control: {len(lost):,} of {len(writers.accepted):,} acknowledged units lost")
    assert len(lost) > 0
