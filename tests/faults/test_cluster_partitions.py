"""T16: nodes are cut off from PostgreSQL and Redis, in halves, alone, one way, again and again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.cluster.links import POSTGRES, REDIS, SERVERS, Links, has_namespaces, open_links
from tests.conftest import IS_NIGHT
from tests.faults.cluster_run import CONVERGED_S, ClusterRun, run_cluster
from tests.faults.cross_node import POLL_LIMIT_S, ChangedDevice, CrossNode, crossing, time_normal
from tests.faults.sizes import SIZES
from tests.lanes import is_measured
from tests.servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

FLAPS = 5
# From when a node is cut off from Redis alone, the others find what it changes in the store.
FOUND_S = 5.0
# At first they have to notice that, after three seconds of silence.
FIRST_FOUND_S = 10.0
Partition = Callable[[Links], Awaitable[None]]


def interrupting(*cuts: tuple[int, str]) -> Partition:
    async def partition(links: Links) -> None:
        for node, server in cuts:
            links.interrupt(node, server)
        await asyncio.sleep(SIZES.cluster_fault_s)  # how long it lasts

    return partition


def losing_answers(node: int, server: str) -> Partition:
    async def partition(links: Links) -> None:
        links.lose_answers(node, server)
        await asyncio.sleep(SIZES.cluster_fault_s)  # as above

    return partition


async def flap(links: Links) -> None:
    for _ in range(FLAPS):
        for server in SERVERS:
            links.interrupt(1, server)
        await asyncio.sleep(SIZES.cluster_fault_s / FLAPS)  # as above
        await links.heal()
        await asyncio.sleep(SIZES.cluster_fault_s / FLAPS)  # and how long it is well


PARTITIONS: dict[str, Partition] = {
    "one node": interrupting(*((0, server) for server in SERVERS)),
    "two of three": interrupting(*((node, server) for node in (0, 1) for server in SERVERS)),
    "one node from PostgreSQL": interrupting((1, POSTGRES)),
    "all nodes from PostgreSQL": interrupting(*((node, POSTGRES) for node in range(3))),
    "one node from Redis": interrupting((2, REDIS)),
    "two nodes from Redis": interrupting((0, REDIS), (1, REDIS)),
    "answers of PostgreSQL": losing_answers(2, POSTGRES),
    "answers of Redis": losing_answers(0, REDIS),
    "one node, flapping": flap,
}


@pytest.mark.parametrize("kind", ["network", "proxy"] if IS_NIGHT else ["network"])
async def test_partitions_lose_nothing_and_heal(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
    kind: str,
) -> None:
    """Nothing is lost or doubled, no lease is held twice, no status goes back."""
    urls, slowest_s = {POSTGRES: postgres.url, REDIS: redis.url}, 0.0
    async with (
        open_links(urls, in_namespaces=kind == "network" and has_namespaces()) as links,
        run_cluster(tmp_path, postgres, redis, links=links) as run,
    ):
        async with run.under_load():
            for name, partition in list(PARTITIONS.items()) * SIZES.cluster_rounds:
                await partition(links)
                await links.heal()
                took_s = await run.converge()
                slowest_s = max(slowest_s, took_s)
                progress_s = await run.progress()
                figures(f"T16 {name}: converged in {took_s:.1f} s, 100 more in {progress_s:.1f} s")
        settled_s = await run.settle()
        faults = await run.find_faults()
        figures(
            f"T16 by {links.kind}: {len(PARTITIONS) * SIZES.cluster_rounds} partitions, slowest "
            f"converged in {slowest_s:.1f} s, {await run.describe()}"
        )
    assert faults[:20] == []
    assert max(slowest_s, settled_s) <= CONVERGED_S or not is_measured()


async def test_without_a_look_after_the_gap_a_push_is_lost(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """The control: a node that hears again has to read what it missed."""
    urls = {POSTGRES: postgres.url, REDIS: redis.url}
    async with (
        open_links(urls, in_namespaces=False) as links,
        run_cluster(tmp_path, postgres, redis, links=links, without="looks") as run,
        crossing(run) as cross,
    ):
        await time_normal(cross)
        links.interrupt(1, REDIS)
        with pytest.raises(TimeoutError):
            await cross.push(SIZES.cluster_fault_s)
        await links.heal()
        await run.converge()
        await time_normal(cross)
        missed = cross.list_missed()
    figures(f"T16, control without a look after the gap: {len(missed)} push lost")
    assert len(missed) == 1


# The timing lane judges a cut that has just begun: waiting for the other one would make that lane
# longer by an eighth. What is not found after it is found only when Redis is back, which the limit
# against hanging shows in CI; its times are judged by `make faults`, after five minutes.
@pytest.mark.parametrize(
    "cut_off_s", [pytest.param(0.0, marks=pytest.mark.timing), SIZES.cut_off_s]
)
async def test_what_a_node_changes_without_redis_is_found_however_long_that_lasts(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
    cut_off_s: float,
) -> None:
    """By the nodes that have Redis; and what these change, by the one that has not."""
    urls = {POSTGRES: postgres.url, REDIS: redis.url}
    async with (
        open_links(urls, in_namespaces=False) as links,
        run_cluster(tmp_path, postgres, redis, links=links) as run,
        crossing(run) as cross,
    ):
        await run.converge()
        await time_normal(cross)
        links.interrupt(0, REDIS)
        first_s = await push_at_first(cross)
        await asyncio.sleep(cut_off_s)
        taken = {"a push": await cross.push(POLL_LIMIT_S)}
        taken |= await time_refusals(run)
        headers = run.installation.api_headers()
        taken["the end of a deleted device"] = await cross.delete(run.spare_id, headers)
    times = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in taken.items())
    figures(
        f"T16 cut off from Redis alone: a push at first {first_s:.1f} s; "
        f"after {cut_off_s:.0f} s: {times}"
    )
    assert first_s <= FIRST_FOUND_S or not is_measured()
    assert max(taken.values()) <= FOUND_S or not is_measured()


async def push_at_first(cross: CrossNode) -> float:
    """Push until the cut must have been noticed, and return how long the slowest push took.

    The very first may cross sooner: a node that has just started looks at the store once.
    """
    slowest_s, began = 0.0, time.monotonic()
    while time.monotonic() - began < FIRST_FOUND_S:
        slowest_s = max(slowest_s, await cross.push(POLL_LIMIT_S))
    return slowest_s


async def time_refusals(run: ClusterRun) -> dict[str, float]:
    """Return after how long one node disconnects and refuses devices that another has changed."""
    alone, other, _ = run.cluster.nodes
    taken = {}
    for name, changer, receiver in (("it", other, alone), ("another", alone, other)):
        for change in (ChangedDevice.invalidate, ChangedDevice.renew_secret):
            device = ChangedDevice(changer, receiver, run.installation.api_headers())
            await device.register()
            taken[f"{change.__name__} until {name} refuses"] = await change(device)
    return taken
