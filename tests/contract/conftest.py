"""The one table of back ends. A fixture yields a port; afterwards nothing of it may be left."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from clarion.hot.memory import MemoryLimits
from clarion.hot.redis import RedisDependency, RedisLimits, connect
from clarion.ports import Administrators, Apps, Dependency, Keys, Limits
from clarion.store.engine import Engine
from clarion.store.opening import migrate, open_engine
from clarion.store.sql.administrators import SqlAdministrators
from clarion.store.sql.apps import SqlApps
from clarion.store.sql.keys import SqlKeys

# A back end and the fixture that has its address: a missing server is an error in that fixture.
STORES = {"sqlite": "sqlite_database", "postgres": "postgres_database"}
HOT = {"memory": "no_address", "redis": "redis_url"}
DEPENDENCIES = {**STORES, "redis": "redis_url"}

Reopen = Callable[[], AbstractAsyncContextManager[Engine]]
LEAVE_WITHIN_SECONDS = 2.0


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'clarion.db'}"


@pytest.fixture
def no_address() -> str:
    return ""


@pytest.fixture(params=STORES)
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(STORES[request.param]))


@pytest.fixture
def waiting_limit() -> int:
    """How many units may wait; a test sets another by its parameter of this name."""
    return 20_000


@pytest.fixture
async def engine(database_url: str, waiting_limit: int) -> AsyncIterator[Engine]:
    await migrate(database_url)
    async with nothing_left(), opened(database_url, waiting_limit) as engine:
        yield engine


@pytest.fixture
def reopen(database_url: str) -> Reopen:
    """Open the same database once more."""
    return lambda: opened(database_url)


@pytest.fixture
def apps(engine: Engine) -> Apps:
    return SqlApps(engine)


@pytest.fixture
def keys(engine: Engine) -> Keys:
    return SqlKeys(engine)


@pytest.fixture
def administrators(engine: Engine) -> Administrators:
    return SqlAdministrators(engine)


@pytest.fixture(params=HOT)
def hot_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(HOT[request.param]))


@pytest.fixture
async def limits(hot_url: str) -> AsyncIterator[Limits]:
    if not hot_url:
        yield MemoryLimits()
        return
    async with nothing_left(), connect(hot_url) as redis:
        # Were Redis to fail, the limit of the fallback would be counted by nobody.
        yield RedisLimits(redis, NoLimits())


class NoLimits(MemoryLimits):
    async def take(self, *_: object, **__: object) -> None:  # type: ignore[override]
        pytest.fail("Redis did not answer")


@pytest.fixture(params=DEPENDENCIES)
def dependency_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(DEPENDENCIES[request.param]))


@asynccontextmanager
async def depending_on(url: str) -> AsyncIterator[Dependency]:
    """Open whatever has this address."""
    if url.startswith("redis"):
        async with connect(url) as redis:
            yield RedisDependency(redis)
    else:
        await migrate(url)
        async with opened(url) as engine:
            yield engine


@asynccontextmanager
async def opened(url: str, waiting_limit: int = 20_000) -> AsyncIterator[Engine]:
    broken: list[str] = []
    engine = await open_engine(
        url, waiting_limit=waiting_limit, batch_limit=1_000, on_broken=broken.append
    )
    try:
        yield engine
    finally:
        await engine.close()
    assert not broken


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Fail if a child process or a task outlives the block."""
    children, tasks = child_processes(), asyncio.all_tasks()
    yield
    gc.collect()
    # A connection that is closed takes a few turns of the loop to be gone.
    limit = asyncio.get_running_loop().time() + LEAVE_WITHIN_SECONDS
    while other_tasks() - tasks and asyncio.get_running_loop().time() < limit:
        await asyncio.sleep(0)
    assert not other_tasks() - tasks, "tasks are left"
    assert not child_processes() - children, "a writer process is left"


def other_tasks() -> set[asyncio.Task[object]]:
    """All tasks but the one that asks: a fixture ends in another task than it began in."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def child_processes() -> set[str]:
    threads = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {pid for thread in threads for pid in (thread / "children").read_text().split()}
