"""What every test may ask for: real servers, a fresh database, an empty Redis, figures."""

import asyncio
import gc
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import redis
from hypothesis import settings

from tests.lanes import Lane, enter_lane, keep_lane, lanes_in
from tests.servers import POSTGRES, REDIS, RedisCluster, SharedServers, shared_url
from tests.sorting import SORTING, choose_sorting, describe_sorting

T = TypeVar("T")
SERVERS = pytest.StashKey[SharedServers]()
FIGURES = "figures"
# Folders whose tests take seconds each, as those that are marked `fault` do.
LONG = frozenset({"browser", "clients", "docs"})

# A limit for each example would fail by chance on a busy machine; pytest-timeout bounds the test.
# In CI the same examples each time: a change is judged by what it did, not by chance. The long run
# (`make faults`) looks for new ones.
IS_NIGHT = os.environ.get("CLARION_TEST_SIZE") == "night"
settings.register_profile("clarion", deadline=None, print_blob=True, derandomize=not IS_NIGHT)
settings.load_profile("clarion")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=list(Lane), help="run the tests of this lane alone")


def pytest_configure(config: pytest.Config) -> None:
    """Start the servers once a run, in the process that the xdist workers come from."""
    enter_lane(config.getoption("lane"))
    if hasattr(config, "workerinput") or config.getoption("collectonly"):
        return
    signal.signal(signal.SIGTERM, interrupt)
    config.stash[SERVERS] = SharedServers()
    config.stash[SERVERS].start()
    if url := os.environ.get(POSTGRES):
        choose_sorting(url)


def pytest_report_header(config: pytest.Config) -> list[str]:
    servers = config.stash.get(SERVERS, None)
    return [*servers.describe(), *describe_sorting()] if servers else []


def pytest_unconfigure(config: pytest.Config) -> None:
    if servers := config.stash.get(SERVERS, None):
        servers.stop()
        os.environ.pop(SORTING, None)


def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores: tests wait for processes and clocks half of their time."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files without a test of the lane: each worker imports on its own."""
    lane = config.getoption("lane")
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if lane and is_test and lane not in lanes_in(collection_path) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the long tests first: one that came last would keep a single worker busy."""
    keep_lane(config, items)
    items[:] = spread(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def spread(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests so that each worker, which begins with a part of them, has long ones first.

    The files of long tests stay whole: their tests share servers.
    """
    files: dict[Path, list[pytest.Item]] = {}
    others = []
    for item in items:
        if is_long(item):
            files.setdefault(item.path, []).append(item)
        else:
            others.append(item)
    whole = list(files.values())
    parts = [[item for file in whole[n::workers] for item in file] for n in range(workers)]
    spread_out: list[pytest.Item] = []
    for number, part in enumerate(parts, 1):
        size = len(items) * number // workers - len(spread_out) - len(part)
        spread_out += [*part, *others[: max(0, size)]]
        del others[: max(0, size)]
    return [*spread_out, *others]


def is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("fault") is not None or item.path.parent.name in LONG


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """At the end of a file, leave what its tests left behind out of later searches as well.

    Reports and caches stay, and thousands of tests search for garbage when they end: without this
    the last ones would take longer to do so than to run.
    """
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """A terminated run ends like an interrupted one, so that no server outlives it."""
    raise KeyboardInterrupt


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Add a line of figures to the summary of the run; call it before the assertion about them."""
    return lambda line: record_property(FIGURES, line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What `make test` proves is the same everywhere: a skip fails it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_core = session.config.getoption("lane") == Lane.CORE
    if is_core and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        str(line)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, line in report.user_properties
        if name == FIGURES
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The address of the PostgreSQL server, at its own database `postgres`."""
    return shared_url(POSTGRES)


@pytest.fixture
def database_name() -> str:
    return f"test_{uuid.uuid4().hex}"


@pytest.fixture
async def postgres_database(postgres_url: str, database_name: str) -> AsyncIterator[str]:
    """The address of a fresh, empty database, dropped afterwards whoever is still connected."""
    await run_sql(postgres_url, f'CREATE DATABASE "{database_name}"')
    yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{database_name}"))
    await run_sql(postgres_url, f'DROP DATABASE "{database_name}" WITH (FORCE)')


@pytest.fixture
def redis_url() -> str:
    """The address of an empty Redis database that no other worker uses.

    Publish and subscribe know no databases: name channels so that no other worker does.
    """
    url = urlunsplit(urlsplit(shared_url(REDIS))._replace(path=f"/{worker_number()}"))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(scope="session")
def worker_redis_cluster() -> Iterator[RedisCluster]:
    """A Redis Cluster of this worker: three primaries."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(worker_redis_cluster: RedisCluster) -> RedisCluster:
    """A Redis Cluster without keys. Whoever stops one of its servers takes one of their own."""
    worker_redis_cluster.flush()
    return worker_redis_cluster


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    return redis_cluster.url


def worker_number() -> int:
    """0 for gw0 and for a run without workers, 3 for gw3."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def run_apart(work: Coroutine[None, None, T]) -> T:
    """Run something in a loop of its own: fixtures of the session have none."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


async def run_sql(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
