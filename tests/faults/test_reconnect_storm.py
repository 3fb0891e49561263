"""T21: all devices of three nodes lose their connections at once, and come back together."""

import asyncio
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bench.installation import Installation
from tests.cluster.nodes import Cluster
from tests.faults.gateway.devices import ChaosDevices
from tests.faults.sizes import SIZES
from tests.servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

SEED = 20_261_118
SETTLED_S = 60.0
QUERIES_EACH = 2.0
RECORDED = "UPDATE devices SET last_seen_at = $1, connected_at = CASE WHEN"[:60]
# With these PostgreSQL writes down every statement that it runs.
LOGGING = {"log_statement": "all", "max_connections": "100"}
STATEMENT = re.compile(r"LOG:  (?:execute [^:]+|statement): (.*)")
NO_QUERIES = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings=LOGGING) as server:
        yield server


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open a connection for each device."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


class Statements:
    """What PostgreSQL has run since the last look."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._seen = 0

    def take(self) -> Counter[str]:
        log = self._server.log
        new, self._seen = log[self._seen :], len(log)
        found = (line.strip()[:60] for line in STATEMENT.findall(new))
        return Counter(line for line in found if not line.startswith(NO_QUERIES))

    async def wait_for_recorded(self, devices: int) -> None:
        """Wait until the nodes have recorded that devices are connected, which they do at times.

        Otherwise it may be in the middle of the storm, as if the devices had asked for it.
        """
        recorded = 0
        while recorded < devices:
            recorded += self.take()[RECORDED]
            await asyncio.sleep(0.1)


async def reconnect_all(devices: ChaosDevices) -> float:
    """Drop every device, and return how long it takes until all are back."""
    began = time.monotonic()
    for device in devices.devices:
        device.disconnect()
        device.ready.clear()
    await asyncio.gather(*(device.ready.wait() for device in devices.devices))
    return time.monotonic() - began


@pytest.mark.usefixtures("many_files")
async def test_devices_that_reconnect_at_once_settle(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    cluster = Cluster(tmp_path, database=postgres.url, redis=redis.url)
    cluster.is_flooded = True
    await asyncio.to_thread(cluster.initialise)
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(cluster.start)
        stack.push_async_callback(asyncio.to_thread, cluster.kill)
        await Installation.read(cluster.data, postgres.url).add_devices(SIZES.storm_devices)
        ports = [node.gateway_port for node in cluster.nodes]
        devices = ChaosDevices(SIZES.storm_devices, *ports, chance=random.Random(SEED))
        await stack.enter_async_context(devices.running())
        devices.stabilise()
        statements = Statements(postgres)
        async with asyncio.timeout(SETTLED_S):
            await statements.wait_for_recorded(SIZES.storm_devices)
            statements.take()
            settled_s = await reconnect_all(devices)
        asked = statements.take()
        await asyncio.sleep(settled_s)  # as long without a storm, to see what else is asked
        idle = statements.take()
    each = (asked - idle).total() / SIZES.storm_devices
    figures(
        f"T21 {SIZES.storm_devices:,} devices back on three nodes after {settled_s:.1f} s, "
        f"{each:.2f} queries each ({asked.total():,}, and {idle.total():,} without a storm): "
        f"{dict((asked - idle).most_common(4))}"
    )
    assert each <= QUERIES_EACH
