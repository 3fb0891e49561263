"""Pushes to connected devices on one, two and three nodes, beside the embedded mode on SQLite.

Every node is sent pushes for the devices of all: with three nodes, two of three cross to another.
All nodes share this machine, so what counts is the CPU time of a push, and what the way between
nodes adds to it.
"""

import asyncio
import http.client
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.deployment import HOST, NO_LIMITS
from bench.device_process import DeviceProcess, Received, connected_devices
from bench.installation import Installation
from bench.load import Load, Result, run_in_process
from bench.process import cpu_of
from bench.subjects.online import StampedPushes
from bench.table import Row, duration, rate, size
from tests.cluster.nodes import Cluster, Node
from tests.servers import PostgresServer, RedisServer

DEVICES = 600
BUS_BYTES = re.compile(r'clarion_bus_bytes_total\{direction="sent"\} (\S+)')


class Costs(NamedTuple):
    """What was used up so far, in seconds of CPU time and in bytes."""

    nodes_s: float
    postgres_s: float
    redis_s: float
    bus_bytes: float

    def since(self, before: "Costs") -> "Costs":
        return Costs(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Running nodes, and the devices that are connected to each."""

    name: str
    nodes: list[Node]
    servers: list[PostgresServer | RedisServer]
    headers: tuple[tuple[str, str], ...]
    devices: list[tuple[range, DeviceProcess]]

    def push(self, seconds: float, at_rate: float | None = None) -> tuple[list[Received], Costs]:
        """Push over all nodes for so long, and wait until all has arrived."""
        each = at_rate / len(self.nodes) if at_rate else None
        before = self.costs()
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            loads = [threads.submit(self._load, node, seconds, each) for node in self.nodes]
            results = [load.result() for load in loads]
        received = [
            process.wait_for(sum(count_for(numbers, result.answered) for result in results))
            for numbers, process in self.devices
        ]
        return received, self.costs().since(before)

    def _load(self, node: Node, seconds: float, at_rate: float | None) -> Result:
        load = Load(
            host=HOST,
            port=node.port,
            connections=4,
            streams=max(192 // (4 * len(self.nodes)), 1),
            duration_s=seconds,
            rate=at_rate,
        )
        result = run_in_process(load, StampedPushes(self.headers, DEVICES, at_rate))
        assert result.by_status.keys() == {200}, result.by_status
        return result

    def costs(self) -> Costs:
        used = [cpu_of(server.pid) for server in self.servers]
        postgres_s, redis_s = used or (0.0, 0.0)
        nodes_s = sum(cpu_of(node.process.pid) for node in self.nodes if node.process)
        return Costs(nodes_s, postgres_s, redis_s, sum(map(read_bus_bytes, self.nodes)))


def measure(seconds: float) -> Iterator[Row]:
    """Measure the embedded mode, then one to three nodes."""
    with on_nodes("SQLite, embedded", 1, is_embedded=True) as nodes:
        yield from _measure(nodes, seconds)
    for count in (1, 2, 3):
        name = f"PostgreSQL and Redis, {count} node" + "s" * (count > 1)
        with on_nodes(name, count) as nodes:
            yield from _measure(nodes, seconds)


def _measure(nodes: Nodes, seconds: float) -> Iterator[Row]:
    nodes.push(1.0)
    received, costs = nodes.push(seconds)
    most = _row(f"push until acknowledged, {nodes.name}", received, costs)
    yield most
    half = (most.throughput or 0) / 2
    received, costs = nodes.push(seconds, half)
    yield _row(f"from provider to device at {rate(half)}, {nodes.name}", received, costs)


def _row(what: str, received: list[Received], costs: Costs) -> Row:
    latencies = sorted(each for some in received for each in some.latencies)
    count = len(latencies)
    first, last = min(each.first_at for each in received), max(each.last_at for each in received)
    servers = f"PostgreSQL {duration(costs.postgres_s / count)}, Redis "
    servers += f"{duration(costs.redis_s / count)}, bus {size(costs.bus_bytes / count)} a push"
    lost = sum(each.lost for each in received)
    return Row(
        what=what,
        throughput=count / (last - first),
        p50_s=latencies[count // 2],
        p99_s=latencies[count * 99 // 100],
        cpu_s=costs.nodes_s / count,
        note=", ".join(
            filter(
                None,
                [
                    servers if costs.postgres_s else "",
                    f"{lost} devices disconnected" if lost else "",
                ],
            )
        ),
    )


@contextmanager
def on_nodes(name: str, count: int, *, is_embedded: bool = False) -> Iterator[Nodes]:
    """Run nodes with devices connected to all of them, for as long as the block lasts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers: list[PostgresServer | RedisServer] = []
        if not is_embedded:
            servers = [stack.enter_context(PostgresServer()), stack.enter_context(RedisServer())]
        places = dict(zip(("database", "redis"), (each.url for each in servers), strict=False))
        flags = {name.strip("-").replace("-", "_"): value for name, value in _pairs()}
        cluster = Cluster(folder, [{}] * count, **flags, **places)
        cluster.initialise()
        cluster.is_flooded = True
        stack.callback(cluster.kill)
        cluster.start()
        installation = Installation.read(cluster.data, places.get("database", ""))
        asyncio.run(installation.add_devices(DEVICES))
        yield Nodes(
            name=name,
            nodes=cluster.nodes,
            servers=servers,
            headers=installation.push_headers(),
            devices=[_connect(stack, cluster.nodes, number) for number in range(count)],
        )


def _pairs() -> Iterator[tuple[str, str]]:
    for flag in NO_LIMITS:
        name, _, value = flag.partition("=")
        yield name, value


def _connect(stack: ExitStack, nodes: list[Node], number: int) -> tuple[range, DeviceProcess]:
    """Connect the share of the devices that a node has."""
    part = DEVICES // len(nodes)
    numbers = range(number * part, (number + 1) * part)
    port = nodes[number].gateway_port
    return numbers, stack.enter_context(connected_devices(port, numbers))


def count_for(numbers: range, pushes: int) -> int:
    """Return how many of so many pushes, which go round all devices, are for these devices."""
    rounds, rest = divmod(pushes, DEVICES)
    return rounds * len(numbers) + len(range(numbers.start, min(numbers.stop, rest)))


def read_bus_bytes(node: Node) -> float:
    """Return how many bytes a node has sent to others."""
    connection = http.client.HTTPConnection(HOST, node.port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        found = BUS_BYTES.search(connection.getresponse().read().decode())
    finally:
        connection.close()
    return float(found[1]) if found else 0.0
