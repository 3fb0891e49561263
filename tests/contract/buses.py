"""The one table of buses: each lets a test join nodes, and closes them afterwards."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count

from clarion.nodes.bus import Bus
from clarion.nodes.local_bus import LocalBus
from tests.hub import Hub

# Joins another node, which hears already, until the block ends: then it leaves in good order.
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
