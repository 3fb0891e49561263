"""The bus while Redis is killed, hangs, is emptied, is cut off or fails over: it hears again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from structlog.testing import capture_logs

from clarion.nodes.bus import DropReason
from clarion.nodes.redis.bus import RedisBus
from clarion.nodes.redis.client import slot_of
from clarion.nodes.redis.link import TIMEOUT_S
from tests.contract.buses import joined_redis
from tests.contract.proxy import Proxy
from tests.contract.test_bus import Received, until, until_held
from tests.lanes import is_measured
from tests.servers import ClusterMember, RedisCluster, RedisServer

LONG_GONE_S = 4.0
DEVICES = [f"device-{number}" for number in range(300)]

pytestmark = pytest.mark.fault


class Pair:
    """Two nodes: one holds devices, and the other speaks to them."""

    def __init__(self, publisher: RedisBus, holder: RedisBus) -> None:
        self.publisher, self.holder = publisher, holder
        self.received = Received(holder, "push", "all")
        self.gaps_seen = Received(publisher)

    async def hold(self) -> None:
        for each in DEVICES:
            self.holder.hold(each, 1)
        await until_held(self.publisher, set(DEVICES))

    async def until_disconnected(self) -> None:
        await until(lambda: not (self.publisher.is_connected or self.holder.is_connected))

    async def until_whole(self, gaps: int = 1) -> float:
        """Wait until both hear and reach each other, and return when both received."""
        clock = asyncio.get_running_loop().time
        await until(lambda: self.publisher.is_connected and self.holder.is_connected)
        await until(lambda: self.received.gaps >= gaps and self.gaps_seen.gaps >= gaps)
        received_at = clock()
        await until_held(self.publisher, set(DEVICES))
        said = len(self.received.of("push"))
        for each in DEVICES:
            self.publisher.send_to_holder("push", each, each.encode())
        self.publisher.publish("all", b"")
        await until(lambda: len(self.received.of("push")) - said == len(DEVICES))
        await until(lambda: bool(self.received.of("all")))
        return received_at


@asynccontextmanager
async def paired(url: str) -> AsyncIterator[Pair]:
    async with joined_redis(url) as publisher, joined_redis(url) as holder:
        pair = Pair(publisher, holder)
        await pair.hold()
        yield pair


async def test_a_killed_server_that_starts_empty_is_filled_again(redis: RedisServer) -> None:
    async with paired(redis.url) as pair:
        redis.kill()
        await pair.until_disconnected()
        assert await pair.publisher.find_held(DEVICES) == frozenset()
        pair.holder.hold("while away", 1)
        pair.holder.release(DEVICES[0])
        pair.holder.hold(DEVICES[0], 2)
        redis.start()
        await pair.until_whole()
        assert await pair.publisher.find_held(["while away"]) == {"while away"}


@pytest.mark.watched
async def test_a_server_that_hangs_costs_one_time_out(redis: RedisServer) -> None:
    clock = asyncio.get_running_loop().time
    async with paired(redis.url) as pair:
        redis.pause()
        started = clock()
        for _ in range(20):
            assert await pair.publisher.find_held(DEVICES) == frozenset()
            pair.holder.hold("d", 1)
            await pair.holder.settle()
            pair.publisher.publish("all", b"lost")
            pair.publisher.send_to_holder("push", "d", b"lost")
        took_s = clock() - started
        assert took_s < 10 * TIMEOUT_S or not is_measured()  # 40 time-outs are twenty seconds
        await pair.until_disconnected()
        assert pair.publisher.counts.dropped[DropReason.UNAVAILABLE] >= 38
        redis.resume()
        await pair.until_whole()


async def test_an_emptied_server_is_filled_again_and_the_gap_is_announced(
    redis: RedisServer,
) -> None:
    async with paired(redis.url) as pair:
        with capture_logs() as logs:
            await pair.holder._client.run([(0, ("FLUSHALL",))])
            await pair.until_whole()
        assert "presence_lost" in {each["event"] for each in logs}


async def test_a_node_that_is_cut_off_is_found_again(redis: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy.to(redis.url))
        publisher = await stack.enter_async_context(joined_redis(redis.url))
        holder = await stack.enter_async_context(joined_redis(proxy.url))
        pair = Pair(publisher, holder)
        await pair.hold()
        await proxy.cut()
        await until(lambda: not holder.is_connected)
        # Nobody hears for it any more: its presence is removed when something is sent there.
        publisher.send_to_holder("push", DEVICES[0], b"lost")
        await until_held(publisher, set(DEVICES[1:]), *DEVICES)
        await proxy.restore()
        await until(lambda: holder.is_connected and pair.received.gaps == 1)
        await until_held(publisher, set(DEVICES))
        proxy.freeze()
        await until(lambda: not holder.is_connected)
        await proxy.cut()  # what was frozen must not come through
        await proxy.restore()
        await until(lambda: holder.is_connected and pair.received.gaps == 2)
        publisher.send_to_holder("push", DEVICES[0], b"heard")
        await until(lambda: pair.received.of("push") == [b"heard"])


async def test_nobody_hears_all_while_a_node_that_the_store_knows_is_cut_off(
    redis: RedisServer,
) -> None:
    """What it changes in the store the others do not hear, however long that lasts."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy.to(redis.url))
        joining = joined_redis(redis.url, silent_s=1.0, gone_s=2.0, node_id="a")
        node = await stack.enter_async_context(joining)
        await stack.enter_async_context(joined_redis(proxy.url, node_id="b"))
        received, known = Received(node), {"a": "first", "b": "second"}
        node.list_living = lambda: known
        await proxy.cut()
        await until(lambda: not node.is_connected)
        await asyncio.sleep(LONG_GONE_S)
        assert not node.is_connected
        del known["b"]
        await until(lambda: node.is_connected and received.gaps == 1)
        known["b"] = "second"
        await until(lambda: not node.is_connected)
        await proxy.restore()
        # It tells the others, too, that they may have missed something.
        await until(lambda: node.is_connected and received.gaps >= 2)


async def test_a_subscription_that_the_server_lost_is_noticed(redis: RedisServer) -> None:
    """As after a failover of a proxy: commands are answered, but nothing is received."""
    async with paired(redis.url) as pair:
        (link,) = pair.holder._client.links
        link._on_push = lambda _channel, _data: None
        with capture_logs() as logs:
            await until(lambda: pair.received.gaps == 1)
            pair.publisher.publish("all", b"heard")
            await until(lambda: pair.received.of("all") == [b"heard"])
        assert ("redis_unavailable", "SubscriptionLost") in {
            (each["event"], each.get("error")) for each in logs
        }


async def test_both_nodes_hear_after_a_failover_of_the_cluster(
    figures: Callable[[str], None],
) -> None:
    clock = asyncio.get_running_loop().time
    with RedisCluster(has_replicas=True) as cluster:
        async with paired(cluster.url) as pair:
            owner = cluster.find_owner(pair.holder._own_channel)
            killed_at = clock()
            owner.kill()
            await pair.until_disconnected()
            received_at = await pair.until_whole()
            figures(
                f"failover of a Redis Cluster: heard again after {received_at - killed_at:.1f} s"
            )


async def test_a_slot_that_moves_to_another_server_is_followed() -> None:
    with RedisCluster() as cluster:
        async with paired(cluster.url) as pair:
            for channel in (pair.holder._own_channel, pair.holder._presence._keys[0]):
                move(cluster, channel)
            await until(lambda: pair.holder.counts.rebuilds > 1)
            await pair.until_whole()


def move(cluster: RedisCluster, name: str) -> None:
    """Move a slot with all its keys, as `redis-cli --cluster reshard` does."""
    source = cluster.find_owner(name)
    target = next(each for each in cluster.primaries if each is not source)
    slot = slot_of(name)
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
    members: list[ClusterMember] = [target, source]
    members += [each for each in cluster.primaries if each not in members]
    for member in members:
        member.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
