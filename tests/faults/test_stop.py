"""T11: a node that is told to stop under load loses nothing and hands nothing over twice."""

import asyncio
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from bench.installation import Installation
from tests.cluster.nodes import Cluster, Node
from tests.faults.cluster_run import NO_LIMITS
from tests.faults.gateway.devices import ChaosDevices
from tests.faults.gateway.pushes import Provider, Push
from tests.faults.sizes import SIZES
from tests.lanes import is_measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

DEVICES = 40
PUSHES_EACH = 250  # while a node stops
RATE = 150.0
GRACE_S = 30
# Between a message and its acknowledgement: some are always under way.
DISTANCE_S = 0.1
TOO_LATE_S = 4.0
PATIENCE_S = 60.0
# Much longer than a message and its acknowledgement take, also on a busy machine.
QUIET_S = 10.0
RESTARTING = 1012


@dataclass(kw_only=True)
class Stops:
    """Two nodes, devices that reconnect at once, and a provider that pushes to them."""

    database: str
    cluster: Cluster
    devices: ChaosDevices
    provider: Provider
    pushes: list[Push]

    @property
    def arrived(self) -> Counter[str]:
        """How often each message came to its device."""
        arrivals: Counter[str] = Counter()
        for device in self.devices.devices:
            for (message_id, _), count in device.kept.items():
                arrivals[message_id] += count
        return arrivals

    async def stop_in_turn(self, stops: int) -> float:
        """Stop one node after the other while pushes come; return the longest that took."""
        longest_s = 0.0
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(self.provider.push_all(RATE))
            for number in range(stops):
                await self.provider.reach((number * 2 + 1) * PUSHES_EACH // 2)
                node = self.cluster.nodes[number % 2]
                longest_s = max(longest_s, await asyncio.to_thread(stop, node))
                await asyncio.to_thread(node.start)
            await pushing
        return longest_s

    async def settle(self) -> None:
        """Wait until every push is acknowledged; devices reconnect if nothing has come for long.

        Not before: one that is cut off gets again what it has but not acknowledged.
        """
        left, since = len(self.pushes), time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            while count := await self._count_unacknowledged():
                if count != left:
                    left, since = count, time.monotonic()
                elif time.monotonic() - since > QUIET_S:
                    since = time.monotonic()
                    for device in self.devices.devices:
                        device.disconnect()
                await asyncio.sleep(0.1)

    async def _count_unacknowledged(self) -> int:
        connection = await asyncpg.connect(self.database)
        try:
            found = "SELECT COUNT(*) FROM messages WHERE id = ANY($1) AND status = 'delivered'"
            count: int = await connection.fetchval(found, [each.id for each in self.pushes])
            return len(self.pushes) - count
        finally:
            await connection.close()


def stop(node: Node) -> float:
    """Stop a node, which must exit with 0, and return the seconds that took."""
    assert node.process is not None
    began = time.monotonic()
    node.send(signal.SIGTERM)
    assert node.process.wait(PATIENCE_S) == 0, node.log.read_text()
    return time.monotonic() - began


def plan(count: int) -> list[Push]:
    return [
        Push(number=number, id=str(uuid.uuid4()), device=number % DEVICES)
        for number in range(count)
    ]


@asynccontextmanager
async def run_stops(
    folder: Path, database: str, redis: str, stops: int, distance_s: float = DISTANCE_S
) -> AsyncIterator[Stops]:
    flags = {**NO_LIMITS, "database": database, "redis": redis, "grace_s": str(GRACE_S)}
    cluster = Cluster(folder, ({}, {}), **flags)
    cluster.is_flooded = True
    await asyncio.to_thread(cluster.initialise)
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(cluster.start)
        stack.push_async_callback(asyncio.to_thread, cluster.kill)
        installation = Installation.read(cluster.data, database)
        await installation.add_devices(DEVICES)
        devices = ChaosDevices(
            DEVICES, cluster.gateway_port, chance=random.Random(11), distance_s=distance_s
        )
        devices.stabilise()
        await stack.enter_async_context(devices.running())
        pushes = plan(stops * PUSHES_EACH)
        provider = Provider(cluster.port, installation.push_headers(), pushes)
        yield Stops(
            database=database, cluster=cluster, devices=devices, provider=provider, pushes=pushes
        )


@pytest.mark.watched
async def test_a_node_that_stops_under_load_loses_and_doubles_nothing(
    tmp_path: Path, postgres_database: str, redis_url: str, figures: Callable[[str], None]
) -> None:
    stops = SIZES.stops
    async with run_stops(tmp_path, postgres_database, redis_url, stops) as run:
        longest_s = await run.stop_in_turn(stops)
        codes = sum((device.codes for device in run.devices.devices), Counter())
        await run.settle()
        arrived = run.arrived
    twice = [each for each, count in arrived.items() if count > 1]
    figures(
        f"T11: {stops} stops, {len(run.pushes):,} pushes, {len(arrived):,} arrived, "
        f"{len(twice)} twice, sockets closed with {dict(codes)}, longest stop {longest_s:.1f} s"
    )
    assert run.provider.accepted == set(arrived)
    assert twice == []
    assert set(codes) == {RESTARTING}
    assert longest_s < GRACE_S or not is_measured()


async def test_devices_that_acknowledge_too_late_are_found_to_get_it_twice(
    tmp_path: Path, postgres_database: str, redis_url: str, figures: Callable[[str], None]
) -> None:
    """The control: a node does not wait for them, and the same check finds what came again."""
    async with run_stops(tmp_path, postgres_database, redis_url, 1, distance_s=TOO_LATE_S) as run:
        await run.stop_in_turn(1)
        await run.settle()
        twice = [each for each, count in run.arrived.items() if count > 1]
    figures(f"T11, control: {len(twice)} of {len(run.pushes)} pushes came twice")
    assert twice
