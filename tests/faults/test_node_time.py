"""T17, T22: nodes that die, are paused, or go by wrong clocks share the work as if nothing were."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from clarion.clock import SystemClock, to_rfc3339
from tests.cluster.nodes import Cluster, Node
from tests.faults.cluster_run import NO_LIMITS
from tests.faults.http_client import Answer, Connection
from tests.faults.journal import read_faults, start_journal
from tests.faults.sizes import SIZES
from tests.faults.test_clock_steps import STEPPED_CLOCK
from tests.lanes import is_measured
from tests.peers.http1 import Http1Peer
from tests.peers.http2 import Reply, Request

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

PATIENCE_S = 120.0
# What is promised is 15 s. A lease that nobody takes over ends after 45 s.
TAKE_OVER_LIMIT_S = 40.0
LOOK_EVERY_S = 0.05
TYPE = "ORDER"
EVENTS = 30
LATER_MS = 5_000


@dataclass(kw_only=True)
class Nodes:
    """Two nodes on one database, and the receiver of their webhooks."""

    cluster: Cluster
    url: str
    api_key: str
    receiver: Http1Peer

    @property
    def first(self) -> Node:
        return self.cluster.nodes[0]

    @property
    def second(self) -> Node:
        return self.cluster.nodes[1]

    async def ask(self, node: Node, method: str, path: str, body: Any = None) -> Answer:
        headers = {"authorization": f"Bearer {self.api_key}", "content-type": "application/json"}
        async with Connection(node.port) as connection:
            data = json.dumps(body).encode() if body is not None else b""
            return await connection.ask(method, path, headers, data)

    async def send(self, node: Node, number: int, **more: str) -> Answer:
        event = {"type": TYPE, "recipient": {"user_id": "ana"}, "data": {"order": str(number)}}
        return await self.ask(node, "POST", "/v1/events", {**event, **more})

    async def set_up(self) -> None:
        hook = {
            "kind": "webhook",
            "settings": {"url": f"http://127.0.0.1:{self.receiver.port}/hook"},
        }
        template = {"body": "{{ order }}", "variables": ["order"]}
        for path, body in (
            ("providers/webhook/main", hook),
            (f"types/{TYPE}", {"default_channels": ["webhook"], "category": "transactional"}),
            (f"types/{TYPE}/templates/webhook", template),
            ("users/ana", {"name": "Ana"}),
        ):
            answer = await self.ask(self.first, "PUT", f"/v1/{path}", body)
            assert answer.status < 300, answer
        quiet = {"quiet_hours": [False] * 24}
        answer = await self.ask(self.first, "PATCH", "/v1/users/ana/preferences", quiet)
        assert answer.status < 300, answer

    @property
    def received(self) -> Counter[str]:
        """How often each notification came."""
        return Counter(each.headers["webhook-id"] for each in self.receiver.requests)

    async def list_nodes(self, node: Node) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = (await self.ask(node, "GET", "/health")).json["nodes"]
        return nodes

    async def is_led_by(self, node: Node, process: int) -> bool:
        """Whether a node knows that the only other process is gone, and leads."""
        nodes = await self.list_nodes(node)
        return len(nodes) == process and all(each["is_leader"] for each in nodes)


async def until(is_so: Callable[[], Any], limit_s: float = PATIENCE_S) -> float:
    """Wait for a condition, which may be a coroutine, and return the seconds that took."""
    began = time.monotonic()
    async with asyncio.timeout(limit_s):
        while True:
            found = is_so()
            if await found if asyncio.iscoroutine(found) else found:
                return time.monotonic() - began
            await asyncio.sleep(LOOK_EVERY_S)


def answer_no_content(_request: Request) -> Reply:
    return Reply(status=204)


@asynccontextmanager
async def two_nodes(folder: Path, database: str, *clocks: Path) -> AsyncIterator[Nodes]:
    """Start two nodes; with `clocks`, each has a clock that a file sets."""
    flags = {**NO_LIMITS, "database": database, "allow_private_targets": "127.0.0.0/8"}
    cluster = Cluster(folder, ({"server_id": "first"}, {"server_id": "second"}), **flags)
    cluster.is_flooded = True
    for node, orders in zip(cluster.nodes, clocks, strict=False):
        variables = (f"PYTHONPATH={STEPPED_CLOCK}", f"CLARION_TEST_CLOCK_ORDERS={orders}")
        node.under = ["env", *variables]
    first = await asyncio.to_thread(cluster.initialise)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, cluster.kill)
        await asyncio.to_thread(cluster.start)
        receiver = await stack.enter_async_context(Http1Peer(answer_no_content).serving(None))
        nodes = Nodes(
            cluster=cluster, url=database, api_key=first["app"]["api_key"], receiver=receiver
        )
        await nodes.set_up()
        await start_journal(database)
        yield nodes


async def hold_deliveries(nodes: Nodes, count: int) -> None:
    """Have the first node send so many webhooks, which are not answered."""
    nodes.second.send(signal.SIGSTOP)
    nodes.receiver.hold()
    for number in range(count):
        assert (await nodes.send(nodes.first, number)).status == 202
    await until(lambda: len(nodes.receiver.requests) == count)
    nodes.second.send(signal.SIGCONT)
    await until(lambda: _has_two_nodes(nodes))


def _has_received(nodes: Nodes, count: int) -> bool:
    return len(nodes.receiver.requests) >= count


async def _has_two_nodes(nodes: Nodes) -> bool:
    with suppress(OSError, EOFError):
        return len(await nodes.list_nodes(nodes.second)) == 2
    return False


async def count_deliveries(url: str) -> Counter[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT status FROM deliveries WHERE channel = 'webhook'")
    finally:
        await connection.close()
    return Counter(row["status"] for row in rows)


@pytest.mark.watched
async def test_the_work_and_the_lead_of_a_killed_node_are_taken_over(
    tmp_path: Path, postgres_database: str, figures: Callable[[str], None]
) -> None:
    async with two_nodes(tmp_path, postgres_database) as nodes:
        await hold_deliveries(nodes, 5)
        nodes.first.kill()
        nodes.receiver.release()
        took_s = await until(lambda: len(nodes.receiver.requests) >= 10)
        led_s = took_s + await until(lambda: nodes.is_led_by(nodes.second, 1))
        await until(lambda: _are(nodes, delivered=5))
        received, faults = nodes.received, (await read_faults(postgres_database))[1]
    figures(f"killed node: its work taken over after {took_s:.1f} s, the lead within {led_s:.1f} s")
    assert set(received.values()) == {2}
    assert faults == []
    assert led_s < TAKE_OVER_LIMIT_S or not is_measured()


async def _are(nodes: Nodes, **counts: int) -> bool:
    return await count_deliveries(nodes.url) == Counter(counts)


async def test_a_paused_worker_that_goes_on_changes_nothing(
    tmp_path: Path, postgres_database: str, figures: Callable[[str], None]
) -> None:
    """T17: it waits for an answer when it is paused, and gets it when another node is done."""
    async with two_nodes(tmp_path, postgres_database) as nodes:
        for number in range(SIZES.pauses):
            await hold_deliveries(nodes, 1)
            nodes.first.send(signal.SIGSTOP)
            sent = len(nodes.receiver.requests)
            took_s = await until(partial(_has_received, nodes, sent + 1))
            nodes.receiver.release()
            await until(partial(_are, nodes, delivered=number + 1))
            nodes.first.send(signal.SIGCONT)
            await until(lambda: _has_two_nodes(nodes))
            assert set(nodes.received.values()) == {2}, "once by each node"
            nodes.receiver.requests.clear()
        assert (await nodes.send(nodes.first, 99)).status == 202
        await until(lambda: _are(nodes, delivered=SIZES.pauses + 1))
        changes, faults = await read_faults(postgres_database)
        late = nodes.received
    figures(f"T17: {SIZES.pauses} pauses, last taken over after {took_s:.1f} s, {changes} changes")
    assert faults == []
    assert set(late.values()) == {1}
    assert took_s < TAKE_OVER_LIMIT_S or not is_measured()


async def test_clocks_that_differ_or_are_set_change_nothing(
    tmp_path: Path, postgres_database: str, figures: Callable[[str], None]
) -> None:
    """T22: five minutes ahead and behind from the start, then an hour more."""
    clocks = (tmp_path / "ahead", tmp_path / "behind")
    for orders, minutes in zip(clocks, (5, -5), strict=True):
        orders.write_text(str(minutes * 60))
    async with two_nodes(tmp_path, postgres_database, *clocks) as nodes:
        await check_time(nodes)
        for orders, minutes in zip(clocks, (65, -65), strict=True):
            orders.write_text(str(minutes * 60))
        early_ms = await check_time(nodes)
        faults = (await read_faults(postgres_database))[1]
        skews = [await read_skew(nodes, node) for node in nodes.cluster.nodes]
        warned = [node.events().count("clock_skewed") for node in nodes.cluster.nodes]
    figures(f"T22: clocks off by {skews} s, scheduled ones {early_ms} ms after their time")
    assert faults == []
    assert [round(each / 60) for each in skews] == [65, -65]
    assert min(warned) >= 1


async def check_time(nodes: Nodes) -> int:
    """Events are accepted and sent at once, retried, and sent at their time and not earlier.

    Return how many milliseconds after its time a scheduled one came.
    """
    nodes.receiver.requests.clear()
    for number in range(EVENTS):
        answer = await nodes.send(nodes.cluster.nodes[number % 2], number)
        assert answer.status == 202, answer
    await until(lambda: len(nodes.received) == EVENTS)
    assert set(nodes.received.values()) == {1}
    nodes.receiver.requests.clear()
    nodes.receiver.always = Reply(status=503)
    assert (await nodes.send(nodes.first, 1)).status == 202
    await until(lambda: nodes.receiver.requests)
    nodes.receiver.always = None
    await until(lambda: len(nodes.receiver.requests) >= 2)
    nodes.receiver.requests.clear()
    moment = SystemClock().now() + LATER_MS
    for node in nodes.cluster.nodes:
        answer = await nodes.send(node, 2, scheduled_at=to_rfc3339(moment))
        assert answer.status == 202, answer
    await until(lambda: nodes.receiver.requests)
    late_ms = SystemClock().now() - moment
    await until(lambda: len(nodes.received) == 2)
    assert late_ms >= 0
    return late_ms


async def read_skew(nodes: Nodes, node: Node) -> float:
    metrics = (await nodes.ask(node, "GET", "/metrics")).body.decode()
    (line,) = (
        each for each in metrics.splitlines() if each.startswith("clarion_clock_skew_seconds ")
    )
    return float(line.split()[1])
