"""The one table of buses: each lets a test join nodes, and closes them afterwards."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count

from clarion.clock import Clock, SystemClock
from clarion.nodes.bus import Bus
from clarion.nodes.local_bus import LocalBus
from clarion.nodes.redis.breaker import RedisUnavailable, make_breaker
from clarion.nodes.redis.bus import RedisBus
from tests.hub import Hub

SYSTEM_CLOCK = SystemClock()
HEARS_WITHIN_S = 30.0
# Joins another node, which is connected already, until the block ends: then it leaves properly.
Join = Callable[[], AbstractAsyncContextManager[Bus]]


@asynccontextmanager
async def join_hub(_address: str) -> AsyncIterator[Join]:
    hub = Hub()

    @asynccontextmanager
    async def join() -> AsyncIterator[Bus]:
        bus = hub.join()
        yield bus
        hub.leave(bus)

    yield join


@asynccontextmanager
async def join_redis(url: str) -> AsyncIterator[Join]:
    yield partial(joined_redis, url, uuid.uuid4().hex)


@asynccontextmanager
async def joined_redis(
    url: str,
    installation_id: str = "",
    *,
    clock: Clock = SYSTEM_CLOCK,
    probe_every_s: float = 0.1,
    beat_every_s: float = 20.0,
    silent_s: float = 5.0,
    node_id: str = "",
    gone_s: float = 60.0,
) -> AsyncIterator[RedisBus]:
    """A node on Redis, once it is connected."""
    breaker = make_breaker(url, installation_id, probe_every_s=probe_every_s)
    bus = RedisBus(
        breaker,
        clock,
        name="node",
        node_id=node_id,
        probe_every_s=probe_every_s,
        beat_every_s=beat_every_s,
        silent_s=silent_s,
        gone_s=gone_s,
    )
    with suppress(RedisUnavailable):  # on a busy machine; then the loop probes it
        await breaker.check()
    runs = (breaker.run, *bus.loops.values())
    loops = [asyncio.ensure_future(run()) for run in runs]
    try:
        async with asyncio.timeout(HEARS_WITHIN_S):
            while not bus.is_connected:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(0.005)
        yield bus
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await bus.close()
        breaker.client.close()


@asynccontextmanager
async def join_processes(_address: str) -> AsyncIterator[Join]:
    """Join nodes as their parent does: with a socket between each two."""
    numbers, joined = count(1), list[LocalBus]()

    @asynccontextmanager
    async def join() -> AsyncIterator[Bus]:
        bus = LocalBus(next(numbers), is_alone=True)
        for other in joined:
            ours, theirs = socket.socketpair()
            await asyncio.gather(bus.join(other.number, ours), other.join(bus.number, theirs))
        joined.append(bus)
        yield bus
        joined.remove(bus)
        await bus.close()

    yield join


# A bus by its name: the fixture with its address, and what joins nodes there.
BUSES: dict[str, tuple[str, Callable[[str], AbstractAsyncContextManager[Join]]]] = {
    "hub": ("no_address", join_hub),
    "processes": ("no_address", join_processes),
    "redis": ("redis_url", join_redis),
    "redis_cluster": ("redis_cluster_url", join_redis),
}


class Nodes:
    """The nodes of a test. Those that it joins leave when it ends."""

    def __init__(self, join: Join, stack: AsyncExitStack) -> None:
        self._join = join
        self._stack = stack
        self._leaving: dict[Bus, AsyncExitStack] = {}

    async def join(self) -> Bus:
        stack = AsyncExitStack()
        bus = await stack.enter_async_context(self._join())
        self._leaving[bus] = stack
        self._stack.push_async_callback(stack.aclose)
        return bus

    async def leave(self, bus: Bus) -> None:
        await self._leaving.pop(bus).aclose()
