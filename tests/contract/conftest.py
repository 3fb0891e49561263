"""The one table of back ends. A fixture yields a port; afterwards nothing of it may be left."""

import asyncio
import gc
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from clarion.access.administrators.sql.stores import AdminStores, make_admin_stores
from clarion.access.model import ProviderKey, UserKey
from clarion.access.sql import AppKeys, Apps, Keys, Tickets, open_provider_keys, open_user_keys
from clarion.access.vault import Vault
from clarion.catalog.port import Templates, Types
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.channels.port import Providers
from clarion.channels.sql import SqlProviders
from clarion.nodes.memory import MemoryLimits
from clarion.nodes.port import Allowance, Dependency, Limits, Quota, Taken
from clarion.nodes.redis.breaker import make_breaker
from clarion.nodes.redis.limits import RedisLimits
from clarion.people.segments.sql.segments import Segments
from clarion.people.sql import Users
from clarion.push.messages import History, Messages
from clarion.push.sql.devices import Devices
from clarion.push.sql.feedback import FeedbackList
from clarion.push.sql.messages import SqlHistory, SqlMessages
from clarion.push.sql.statistics import Statistics
from clarion.push.sql.topics import Broadcasts, Topics
from clarion.push.webpush.sql import PushEndpoints
from clarion.store.engine import Engine
from clarion.store.opening import migrate, open_engine, sqlite_path
from clarion.store.postgres.engine import PostgresEngine
from tests import fork_server
from tests.conftest import run_apart, run_sql
from tests.factories import FixedClock
from tests.sorting import chosen_sorting

# A back end and the fixture that has its address: a missing server is an error in that fixture.
STORES = {"sqlite": "migrated_database", "postgres": "emptied_database"}
REDIS = {"redis": "redis_url", "redis_cluster": "redis_cluster_url"}
HOT = {"memory": "no_address", **REDIS}
DEPENDENCIES = {**STORES, **REDIS}

REMEMBER_TABLES = """
CREATE SCHEMA kept;
CREATE TABLE kept.tables AS SELECT tablename FROM pg_tables WHERE schemaname = 'public'
"""
# A third of the time that making the tables anew takes: most tests write to one or two of them.
# Tables that a test made for itself are dropped. Who still holds a lock has leaked a connection.
EMPTY = """
SET lock_timeout = '60s';
DO $$
DECLARE
  name text;
  has_rows boolean;
  filled text[] := '{}';
BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO has_rows;
    IF name NOT IN (SELECT tablename FROM kept.tables) THEN
      EXECUTE format('DROP TABLE %I', name);
    ELSIF has_rows AND name <> 'migrations' THEN
      filled := filled || quote_ident(name);
    END IF;
  END LOOP;
  IF filled <> '{}' THEN
    EXECUTE 'TRUNCATE ' || array_to_string(filled, ', ');
  END IF;
END $$
"""

Reopen = Callable[[], AbstractAsyncContextManager[Engine]]
LEAVE_WITHIN_SECONDS = 60.0


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'clarion.db'}"


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all migrations, which a test copies."""
    path = tmp_path_factory.mktemp("migrated") / "clarion.db"
    run_apart(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture
def migrated_database(sqlite_database: str, tmp_path: Path, migrated_file: Path) -> str:
    shutil.copy(migrated_file, tmp_path / "clarion.db")
    return sqlite_database


@pytest.fixture(scope="session")
def worker_database(postgres_url: str) -> Iterator[str]:
    """One migrated database for all contract tests of a worker: one for each would take longer.

    Where the machine can, it sorts as people do; all other tests have one that sorts by bytes.
    """
    name = f"contract_{uuid.uuid4().hex}"
    url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    run_apart(create_sorting(postgres_url, name))
    run_apart(migrate(url))
    run_apart(run_sql(url, REMEMBER_TABLES))
    yield url
    run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def empty_worker_database(worker_database: str) -> Iterator[Callable[[], object]]:
    """Empties the database, by one connection: the first statement of each takes 20 ms."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(worker_database))
        yield lambda: runner.run(connection.execute(EMPTY))
        runner.run(connection.close())


@pytest.fixture
def emptied_database(worker_database: str, empty_worker_database: Callable[[], object]) -> str:
    """A migrated database without rows."""
    empty_worker_database()
    return worker_database


async def create_sorting(server_url: str, name: str) -> None:
    """Create a database that sorts as the first lines of the run say."""
    sorting = chosen_sorting()
    await run_sql(server_url, f"CREATE DATABASE {name} {sorting.options}")


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
    async with nothing_left(), opened(database_url, waiting_limit) as engine:
        yield engine


@pytest.fixture
def reopen(database_url: str) -> Reopen:
    """Open the same database once more."""
    return lambda: opened(database_url)


@pytest.fixture
def apps(engine: Engine) -> Apps:
    return Apps(engine)


@pytest.fixture
def keys(engine: Engine) -> Keys:
    return Keys(engine)


@pytest.fixture
def user_keys(engine: Engine) -> AppKeys[UserKey]:
    return open_user_keys(engine)


@pytest.fixture
def provider_keys(engine: Engine) -> AppKeys[ProviderKey]:
    return open_provider_keys(engine)


@pytest.fixture
def tickets(engine: Engine) -> Tickets:
    return Tickets(engine)


@pytest.fixture
def admins(engine: Engine) -> AdminStores:
    return make_admin_stores(engine)


@pytest.fixture
def devices(engine: Engine) -> Devices:
    return Devices(engine)


@pytest.fixture
def endpoints(engine: Engine) -> PushEndpoints:
    return PushEndpoints(engine)


@pytest.fixture
def feedback(engine: Engine) -> FeedbackList:
    return FeedbackList(engine)


@pytest.fixture
def messages(engine: Engine) -> Messages:
    return SqlMessages(engine)


@pytest.fixture
def history(engine: Engine) -> History:
    return SqlHistory(engine)


@pytest.fixture
def topics(engine: Engine) -> Topics:
    return Topics(engine)


@pytest.fixture
def broadcasts(engine: Engine) -> Broadcasts:
    return Broadcasts(engine)


@pytest.fixture
def statistics(engine: Engine) -> Statistics:
    return Statistics(engine)


@pytest.fixture
def users(engine: Engine) -> Users:
    return Users(engine)


@pytest.fixture
def segments(engine: Engine) -> Segments:
    return Segments(engine)


@pytest.fixture
def providers(engine: Engine) -> Providers:
    return SqlProviders(engine, Vault(bytes(32)))


@pytest.fixture
def types(engine: Engine) -> Types:
    return SqlTypes(engine)


@pytest.fixture
def templates(engine: Engine) -> Templates:
    return SqlTemplates(engine)


@pytest.fixture
async def other_node(engine: Engine, database_url: str) -> AsyncIterator[Engine]:
    """The same database, opened by another node; on SQLite that is another process."""
    async with opened(database_url) as other:
        assert other is not engine
        yield other


@pytest.fixture(params=HOT)
def hot_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(HOT[request.param]))


@pytest.fixture
async def limits(hot_url: str) -> AsyncIterator[Limits]:
    if not hot_url:
        yield MemoryLimits(FixedClock())
        return
    async with nothing_left():
        breaker = make_breaker(hot_url, "test")
        await breaker.check()
        # Were Redis to fail, the limit of the fallback would be counted by nobody.
        yield RedisLimits(breaker, NoLimits())
        breaker.client.close()


class NoLimits:
    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        pytest.fail(f"Redis did not count {key}, {limit}, {window_s}, {now}")

    async def take_all(self, quotas: Sequence[Quota], *, window_s: int, now: int) -> Taken:
        pytest.fail(f"Redis did not count {quotas}, {window_s}, {now}")


@pytest.fixture(params=DEPENDENCIES)
def dependency_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(DEPENDENCIES[request.param]))


@asynccontextmanager
async def depending_on(url: str) -> AsyncIterator[Dependency]:
    """Open whatever has this address."""
    if url.startswith("redis"):
        breaker = make_breaker(url, "test")
        yield breaker
        breaker.client.close()
    else:
        async with opened(url) as engine:
            yield engine


@asynccontextmanager
async def opened(url: str, waiting_limit: int = 20_000) -> AsyncIterator[Engine]:
    broken: list[str] = []
    engine = await (open_sqlite if sqlite_path(url) else open_postgres)(
        url, waiting_limit=waiting_limit, batch_limit=1_000, on_broken=broken.append
    )
    try:
        yield engine
    finally:
        await engine.close()
    assert not broken


async def open_sqlite(url: str, **options: Any) -> Engine:
    """Open a database with a writer process that is forked."""
    return await open_engine(url, writer=await fork_server.begin_writer(), **options)


async def open_postgres(url: str, **options: Any) -> Engine:
    """Open a database with as many connections as the test needs: ten take longer than most do."""
    del options["on_broken"]
    return await PostgresEngine.open(url, at_once=False, **options)


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Fail if a child process or a task outlives the block."""
    children, tasks = child_processes(), asyncio.all_tasks()
    yield
    gc.collect()
    # A connection that is closed takes a few turns of the loop to be gone.
    if left := other_tasks() - tasks:
        await asyncio.wait(left, timeout=LEAVE_WITHIN_SECONDS)
    assert not other_tasks() - tasks, "tasks are left"
    assert not child_processes() - children, "a writer process is left"


def other_tasks() -> set[asyncio.Task[object]]:
    """All tasks but the one that asks: a fixture ends in another task than it began in."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def child_processes() -> set[str]:
    """The processes that this one has started, and those that it had forked."""
    children: set[str] = set()
    for pid in (os.getpid(), fork_server.connect().pid):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError):  # the thread has ended since
                children.update((thread / "children").read_text().split())
    return children
