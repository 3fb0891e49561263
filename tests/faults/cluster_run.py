"""Three nodes under load: events and pushes through the balancer, devices on all nodes.

A test does something bad while the load runs. Then everything that was accepted must be there once,
in the inboxes and on the devices, no status may have gone back, and no lease been held twice.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.installation import Installation
from clarion.clock import SystemClock
from clarion.push.sql.messages import SqlMessages
from tests.cluster.links import Links
from tests.cluster.nodes import NO_MORE, Cluster, Node
from tests.faults import pipeline_state
from tests.faults.gateway import history
from tests.faults.gateway.devices import ChaosDevices
from tests.faults.gateway.pushes import Provider, Push
from tests.faults.gateway.pushes import plan as plan_pushes
from tests.faults.http_client import Connection
from tests.faults.journal import read_faults, start_journal
from tests.faults.pipeline_load import PlannedRequest, Senders, plan, set_up
from tests.faults.sizes import SIZES
from tests.servers import PostgresServer, RedisCluster, RedisServer

UNPROTECTED = Path(__file__).parent / "unprotected"
SEED = 20_261_117
CLIENTS = 6
PART = 100
DRAIN_LIMIT_S = 120.0
CONVERGED_S = 30.0
CONVERGE_LIMIT_S = 120.0
PROGRESS_LIMIT_S = 90.0
LOOK_EVERY_S = 0.1
# Longer than the one attempt that a one-shot message has.
LATER_MS = 5 * 60_000
NO_LIMITS = {
    "requests_per_minute": "100000000",
    "app_requests_per_minute": "100000000",
    "device_messages_per_minute": "1000000",
    "low_priority_window_s": "5",
}


@dataclass(frozen=True)
class App:
    """The app of the first run, as seen through the balancer or on one node."""

    port: int
    api_key: str


@dataclass(kw_only=True)
class ClusterRun:
    """A cluster, its database and Redis, its load, and what came of it."""

    cluster: Cluster
    url: str
    app: App
    installation: Installation
    device_ids: list[str]
    spare_id: str  # of the device that takes no part in the load
    devices: ChaosDevices
    senders: Senders
    provider: Provider
    pushes: dict[str, Push]
    chance: random.Random
    settled_s: float = 0.0
    records: dict[int, list[history.Record]] = field(default_factory=dict)

    @asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Send for as long as the block lasts, and then finish what was begun."""
        async with asyncio.TaskGroup() as group, self.senders.running(CLIENTS):
            pushing = group.create_task(self.provider.push_all(SIZES.cluster_pushes_per_second))
            await self.progress()
            yield
            self.senders.stop()
            await pushing

    async def progress(self, requests: int = PART) -> float:
        """Return when so many more requests were accepted, and how long that took."""
        began, wanted = time.monotonic(), len(self.senders.accepted) + requests
        async with asyncio.timeout(PROGRESS_LIMIT_S):
            await self.senders.reach(wanted)
        return time.monotonic() - began

    async def settle(self) -> float:
        """Wait until nothing is left to do, and return the seconds that took."""
        began = time.monotonic()
        self.devices.stabilise()
        await self._drain_events()
        await self._drain_messages()
        self.settled_s = time.monotonic() - began
        return self.settled_s

    async def _drain_events(self) -> None:
        give_up = time.monotonic() + DRAIN_LIMIT_S
        async with pipeline_state.reading(self.url) as fetch:
            # Nothing signals us: the work goes on in other processes.
            while await pipeline_state.count_jobs(fetch) and time.monotonic() < give_up:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)

    async def _drain_messages(self) -> None:
        give_up = time.monotonic() + DRAIN_LIMIT_S
        behind: Sequence[int] = range(len(self.device_ids))
        while behind and time.monotonic() < give_up:
            await self._expire_attempts()
            self.records |= await history.read_history(self.app, self.device_ids, behind)
            behind = history.waiting_devices(self.records, self.pushes)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _expire_attempts(self) -> None:
        """End what has one attempt, or a short life, and did not arrive: time is an argument."""
        async with self.installation.opened() as engine:
            later = SystemClock().now() + LATER_MS
            await SqlMessages(engine).expire(later, len(self.pushes))

    async def find_faults(self) -> list[str]:
        """Return what was lost, doubled, went back, or was leased twice."""
        async with pipeline_state.reading(self.url) as fetch:
            state = await pipeline_state.read_state(fetch)
        faults = list(pipeline_state.find_faults(state, self.senders.begun, self.senders.accepted))
        kept = {number: device.kept.keys() for number, device in enumerate(self.devices.devices)}
        faults += history.find_faults(self.pushes, self.provider.accepted, kept, self.records)
        faults += [f"refused: {each}" for each in self.provider.refused]
        return faults + (await read_faults(self.url))[1]

    async def describe(self) -> str:
        changes, _ = await read_faults(self.url)
        ends = dict(history.count_ends(self.records))
        return (
            f"{len(self.senders.accepted):,} requests and {len(self.provider.accepted):,} pushes "
            f"accepted, {len(self.senders.unknown):,} and {len(self.provider.unknown):,} unknown "
            f"and retried, answers {dict(self.senders.statuses)}, pushes {ends}, "
            f"{changes:,} changes of status and claims, settled in {self.settled_s:.1f} s"
        )

    async def converge(self) -> float:
        """Wait until every node says that all it needs is connected; return how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(CONVERGE_LIMIT_S):
            for node in self.cluster.nodes:
                while not await _is_healthy(node):  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - began


def plan_forever(chance: random.Random) -> Iterator[PlannedRequest]:
    """Yield requests without end, each with a key and texts of its own."""
    for part in itertools.count():
        for request in plan(PART, chance):
            label = f"part {part}, "
            yield PlannedRequest(
                key=f"{part} {request.key}",
                path=request.path,
                body=request.body.replace(b'"label": "', b'"label": "' + label.encode()),
                receipts=tuple((user, label + text) for user, text in request.receipts),
                events=request.events,
            )


@asynccontextmanager
async def run_cluster(
    folder: Path,
    postgres: PostgresServer,
    redis: RedisServer | RedisCluster,
    *,
    links: Links | None = None,
    without: str | None = None,
) -> AsyncIterator[ClusterRun]:
    """Start three nodes, bring devices online on all of them, and have the load ready.

    `without` names the protection that the nodes lack: see `unprotected/sitecustomize.py`.
    """
    flags = {**NO_LIMITS, "database": postgres.url, "redis": redis.url}
    cluster = Cluster(folder, links.node_flags if links else NO_MORE, **flags)
    if links:
        for node, host, under in zip(cluster.nodes, links.hosts, links.under, strict=True):
            node.place(host, under)
    if without:
        for node in cluster.nodes:
            variables = (f"PYTHONPATH={UNPROTECTED}", f"CLARION_TEST_WITHOUT={without}")
            node.under = [*node.under, "env", *variables]
    first = await asyncio.to_thread(cluster.initialise)
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(cluster.start)
        stack.push_async_callback(asyncio.to_thread, cluster.kill)
        yield await _prepare(cluster, first, postgres.url, stack)


async def _prepare(
    cluster: Cluster, first: Mapping[str, Any], url: str, stack: AsyncExitStack
) -> ClusterRun:
    chance = random.Random(SEED)
    installation = Installation.read(cluster.data, url)
    # One more than take part in the load, for what a test does with it.
    *device_ids, spare_id = await installation.add_devices(SIZES.cluster_devices + 1)
    app = App(cluster.port, first["app"]["api_key"])
    await set_up(app)
    await start_journal(url)
    devices = ChaosDevices(SIZES.cluster_devices, cluster.gateway_port, chance=chance)
    await stack.enter_async_context(devices.running())
    pushes = plan_pushes(chance, devices=SIZES.cluster_devices, count=SIZES.cluster_pushes)
    return ClusterRun(
        cluster=cluster,
        url=url,
        app=app,
        installation=installation,
        device_ids=device_ids,
        spare_id=spare_id,
        devices=devices,
        senders=Senders(app, plan_forever(chance)),
        provider=Provider(cluster.port, installation.push_headers(), pushes),
        pushes={push.id: push for push in pushes},
        chance=chance,
    )


async def _is_healthy(node: Node) -> bool:
    try:
        async with Connection(node.port, node.host) as connection:
            answer = await connection.ask("GET", "/health")
    except (OSError, EOFError):
        return False
    return answer.status == 200 and answer.json["status"] == "healthy"
