"""T15: Redis is killed, hangs, is flushed, and is full, while three nodes work with it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from bench.installation import secret_of, token_of
from tests.conftest import IS_NIGHT
from tests.e2e.administrators import Browser, make_administrator
from tests.faults.cluster_run import ClusterRun, run_cluster
from tests.faults.cross_node import POLL_LIMIT_S, CrossNode, OneConnection, crossing, time_normal
from tests.faults.sizes import SIZES
from tests.lanes import is_measured, limit_s
from tests.servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

# Without Redis, a node finds in the store what others have stored, within so many seconds.
FOUND_S = 5.0
NORMAL_WITHIN_S = 10.0
TOO_MANY = 429
# While Redis hangs, the older of two connections of a device is closed within so many seconds.
CLOSED_S = 10.0
REPLACED = 4409


async def kill(run: ClusterRun, cross: CrossNode, redis: RedisServer) -> float:
    """Killed; what comes back is empty."""
    redis.kill()
    await run.progress(10)
    crossed_s = await cross.push(POLL_LIMIT_S)
    await lock_out(run)
    await asyncio.to_thread(redis.start)
    return crossed_s


async def lock_out(run: ClusterRun) -> None:
    """Guessing passwords is stopped over all nodes, without Redis too."""

    def guess() -> list[int]:
        account = make_administrator(run.url)
        browser = Browser(run.cluster.port)
        return [browser.sign_in(account.username, "wrong").status for _ in range(7)]

    assert (await asyncio.to_thread(guess))[-1] == TOO_MANY


async def pause(run: ClusterRun, cross: CrossNode, redis: RedisServer) -> float:
    """Hanging: connections stay open, nothing is answered."""
    redis.pause()
    try:
        await run.progress(10)
        crossed_s = await cross.push(POLL_LIMIT_S)
        await asyncio.sleep(SIZES.cluster_fault_s)  # how long it hangs at least
    finally:
        redis.resume()
    return crossed_s


async def flush(run: ClusterRun, cross: CrossNode, redis: RedisServer) -> float:
    """Everything in it is deleted, without anybody being told."""
    async with Redis.from_url(redis.url) as client:
        await client.flushall()
    await run.progress(10)
    return await cross.push(POLL_LIMIT_S)


async def fill(run: ClusterRun, cross: CrossNode, redis: RedisServer) -> float:
    """It is full, and refuses to store anything."""
    async with Redis.from_url(redis.url) as client:
        await client.config_set("maxmemory", 1)
        try:
            await run.progress()
            return await cross.push(POLL_LIMIT_S) if IS_NIGHT else 0.0
        finally:
            await client.config_set("maxmemory", 0)


Fault = Callable[[ClusterRun, CrossNode, RedisServer], Awaitable[float]]
FAULTS: list[Fault] = [kill, pause, flush, fill]
WITHOUT_BUS = (kill, pause)


@pytest.mark.watched
async def test_nodes_lose_nothing_with_redis(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """Redis has nothing that is not elsewhere: all is delivered, and normal again by itself."""
    slowest_s = found_s = 0.0
    async with run_cluster(tmp_path, postgres, redis) as run, crossing(run) as cross:
        async with run.under_load():
            usual_s = await time_normal(cross)
            for fault in FAULTS * SIZES.cluster_rounds:
                crossed_s = await fault(run, cross, redis)
                await run.converge()
                normal_s = await time_normal(cross)
                slowest_s = max(slowest_s, normal_s)
                if fault in WITHOUT_BUS:
                    found_s = max(found_s, crossed_s)
                figures(
                    f"T15 {fault.__name__}: a push to another node took {crossed_s:.2f} s, "
                    f"normal {normal_s:.1f} s after it was back"
                )
        await run.settle()
        faults = await run.find_faults()
        figures(
            f"T15 on three nodes: a push crossed in {usual_s:.3f} s at first, {cross.connections} "
            f"connections of that device, {await run.describe()}"
        )
    assert faults[:20] == []
    assert set(run.senders.statuses) == {202}
    assert slowest_s <= NORMAL_WITHIN_S or not is_measured()
    assert found_s <= FOUND_S or not is_measured()


async def test_without_looks_at_the_store_a_push_is_not_found(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """The control: without Redis it is the look at the store that finds a push."""
    run_without = run_cluster(tmp_path, postgres, redis, without="looks")
    async with run_without as run, crossing(run) as cross:
        await time_normal(cross)
        redis.kill()
        with pytest.raises(TimeoutError):
            await cross.push(FOUND_S)
        figures(f"T15, control without looks: a push did not cross within {FOUND_S:.0f} s")


# The same without a fault is in `tests/e2e/test_nodes.py`, whose Redis others use as well.
@pytest.mark.watched
async def test_the_newest_connection_wins_while_redis_hangs(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """Of a device that was connected before, goes back and forth, and stays when Redis is back."""
    async with run_cluster(tmp_path, postgres, redis) as run:
        one, two, three = run.cluster.nodes
        token, secret = token_of(SIZES.cluster_devices), secret_of(SIZES.cluster_devices)
        taken: list[float] = []
        older = OneConnection()
        assert await older.open(one, token, secret), older.code
        redis.pause()
        try:
            for node in (two, one, two, three, one):
                newer = OneConnection()
                assert await newer.open(node, token, secret), newer.code
                began = time.monotonic()
                assert await older.close_code(limit_s(CLOSED_S)) == REPLACED
                taken.append(time.monotonic() - began)
                older = newer
            # Longer than the older ones have taken.
            with pytest.raises(TimeoutError):
                await newer.close_code(max(taken) + 2)
        finally:
            redis.resume()
        await run.converge()
        async with crossing(run) as cross:  # it connects to the second node
            assert await newer.close_code(limit_s(CLOSED_S)) == REPLACED
            await time_normal(cross)
            assert cross.connections == 1
        times = ", ".join(f"{each:.1f}" for each in taken)
        figures(f"T15 Redis hangs: the older connection was closed after {times} s")
