"""Redis away: each node counts for itself, at once, until Redis is back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from clarion.nodes.memory import MemoryLimits
from clarion.nodes.port import Allowance
from clarion.nodes.redis.address import parse_address
from clarion.nodes.redis.breaker import RedisBreaker, RedisUnavailable, make_breaker
from clarion.nodes.redis.client import connect_once
from clarion.nodes.redis.limits import RedisLimits
from clarion.nodes.redis.link import TIMEOUT_S, RedisRefused
from tests.factories import NOW, FixedClock
from tests.processes import free_port
from tests.replacing import replace
from tests.servers import RedisCluster, RedisServer

PROBE_S = 0.05
WITHIN_S = 10


@pytest.fixture
def unreachable() -> RedisBreaker:
    """The breaker of a server that is not there."""
    return make_breaker(f"redis://127.0.0.1:{free_port()}/0", "test")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def probing(url: str) -> AsyncIterator[tuple[RedisBreaker, list[int]]]:
    """Run the probe; the list has the changes that were announced."""
    changes: list[int] = []
    breaker = make_breaker(url, "test", probe_every_s=PROBE_S)
    await breaker.check()
    breaker.on_change = changes.append
    probe = asyncio.create_task(breaker.run())
    yield breaker, changes
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    breaker.client.close()


async def closed(breaker: RedisBreaker) -> None:
    async with asyncio.timeout(WITHIN_S):
        while breaker.is_open:  # noqa: ASYNC110 - a probe closes it, without a signal
            await asyncio.sleep(PROBE_S)


async def take(limits: RedisLimits, limit: int = 1_000_000) -> Allowance:
    return await limits.take("a", limit=limit, window_s=60, now=NOW)


async def test_without_redis_the_node_counts_for_itself(unreachable: RedisBreaker) -> None:
    limits = RedisLimits(unreachable, MemoryLimits(FixedClock()))
    taken = [await take(limits, limit=2) for _ in range(3)]
    assert [each.is_exceeded for each in taken] == [False, False, True]


async def test_without_redis_the_check_fails(unreachable: RedisBreaker) -> None:
    with pytest.raises(RedisUnavailable) as raised:
        await unreachable.check()
    assert raised.value.retryable


async def test_redis_that_hangs_costs_one_time_out_and_is_used_again_when_it_answers(
    server: RedisServer,
) -> None:
    clock = asyncio.get_running_loop().time
    async with probing(server.url) as (breaker, changes):
        limits = RedisLimits(breaker, MemoryLimits(FixedClock()))
        await take(limits)
        server.pause()
        await take(limits)
        started = clock()
        for _ in range(20):
            await take(limits)
        assert clock() - started < 5 * TIMEOUT_S  # 20 time-outs are ten seconds
        assert (breaker.is_open, changes) == (True, [0])
        server.resume()
        await closed(breaker)
        assert changes == [0, 1]
        # One before the pause, and perhaps the one that was under way.
        assert (await take(limits, limit=10)).remaining in {7, 8}


async def test_a_change_is_logged_once(server: RedisServer) -> None:
    with capture_logs() as logs:
        async with probing(server.url) as (breaker, _):
            limits = RedisLimits(breaker, MemoryLimits(FixedClock()))
            server.pause()
            await asyncio.gather(*(take(limits) for _ in range(30)))
            await asyncio.sleep(3 * PROBE_S)
            server.resume()
            await closed(breaker)
    assert [entry["event"] for entry in logs] == ["redis_unavailable", "redis_available"]


async def test_many_that_ask_at_once_ask_redis_once(server: RedisServer) -> None:
    async with probing(server.url) as (breaker, _):
        server.pause()
        clock = asyncio.get_running_loop().time
        started = clock()
        checks = (breaker.check() for _ in range(200))
        results = await asyncio.gather(*checks, return_exceptions=True)
        assert {type(each) for each in results} == {RedisUnavailable}
        assert clock() - started < 10 * TIMEOUT_S


async def test_a_server_says_what_it_is(redis_url: str, redis_cluster_url: str) -> None:
    one = await connect_once(parse_address(redis_url))
    assert one.product in {"redis", "valkey"}
    assert int(one.version.partition(".")[0]) >= 7
    assert one.primaries == 0
    assert await connect_once(parse_address(redis_cluster_url)) == replace(one, primaries=3)


async def test_any_server_of_a_cluster_is_enough_to_find_it(redis_cluster: RedisCluster) -> None:
    url = redis_cluster.primaries[1].url
    dead = f"127.0.0.1:{free_port()}"
    assert (await connect_once(parse_address(url))).primaries == 3
    several = parse_address(url.replace("redis://", f"redis://{dead},"))
    assert (await connect_once(several)).primaries == 3


HELLOS = {
    "VERSION": ("6.2.14", "standalone", "master"),
    "READONLY": ("7.0.0", "standalone", "replica"),
    "SENTINEL": ("7.0.0", "sentinel", "master"),
}


@pytest.mark.parametrize("word", HELLOS)
async def test_a_server_that_cannot_be_used_says_why(word: str) -> None:
    version, mode, role = HELLOS[word]
    fields = {"server": "redis", "version": version, "mode": mode, "role": role}
    texts = [text for pair in fields.items() for text in pair]
    hello = f"%{len(fields)}\r\n" + "".join(f"${len(each)}\r\n{each}\r\n" for each in texts)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"clarion\r\n")
        writer.write(hello.encode())
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(RedisRefused, match=f"^{word} "):
            await connect_once(parse_address(f"redis://127.0.0.1:{port}"))
        await ended.wait()


async def test_a_limit_is_not_counted_while_its_slot_is_elsewhere(
    redis_cluster: RedisCluster,
) -> None:
    """A refused command opens the breaker; the next probe learns where the slot is."""
    async with probing(redis_cluster.url) as (breaker, changes):
        breaker.client._owners.reverse()
        limits = RedisLimits(breaker, MemoryLimits(FixedClock()))
        assert (await take(limits, limit=5)).remaining == 4
        await until_changed(changes)
        assert (await take(limits, limit=5)).remaining == 4
        assert (await take(limits, limit=5)).remaining == 3


async def until_changed(changes: list[int]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while changes != [0, 1]:  # noqa: ASYNC110 - a probe closes it, without a signal
            await asyncio.sleep(PROBE_S)
