"""A task that is cancelled while it asks a server ends, also if the answer comes in that moment."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from ipaddress import ip_network

import pytest

from clarion.channels.http_clients import HttpClients, ProviderRequest
from clarion.channels.targets import Targets
from clarion.client import AsyncClarion
from clarion.client.cancellation import end_if_cancelled
from tests.unit.channels.http_peers import OK, answering, listening

Ask = Callable[[], Awaitable[object]]
TRIES = 400


@asynccontextmanager
async def provider(port: int) -> AsyncIterator[Ask]:
    """Send as channels do."""
    targets = Targets([ip_network("127.0.0.0/8")], resolver=lambda _host: ["127.0.0.1"])
    clients = HttpClients(targets)
    url = f"http://localhost:{port}/"
    yield lambda: clients.post(ProviderRequest(url, {}, b"{}", timeout_s=60))
    await clients.close()


@asynccontextmanager
async def server(port: int) -> AsyncIterator[Ask]:
    """Ask as applications do."""
    async with AsyncClarion(f"http://127.0.0.1:{port}", api_key="x") as clarion:
        yield lambda: clarion.request("GET", "/v1/stats", returns=dict)


@pytest.mark.parametrize("asking", [provider, server])
async def test_a_cancellation_is_never_lost(
    asking: Callable[[int], AbstractAsyncContextManager[Ask]],
) -> None:
    cancelled = 0
    answer = OK.replace(b"ok", b"{}")
    async with listening(answering(answer)) as peer, asking(peer.port) as ask:
        await ask()
        begin = time.perf_counter()
        await ask()
        usual_s = time.perf_counter() - begin
        for turn in range(TRIES):
            task: asyncio.Future[object] = asyncio.ensure_future(ask())
            await asyncio.sleep(usual_s * turn / TRIES)
            if task.cancel():
                cancelled += 1
                with pytest.raises(asyncio.CancelledError):
                    await task
    assert cancelled > TRIES / 10


async def test_a_time_out_inside_of_an_operation_is_its_own() -> None:
    async def give_up() -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        return "gave up"

    assert await end_if_cancelled(give_up()) == "gave up"


async def test_a_time_out_around_an_operation_is_a_time_out() -> None:
    async def ignore() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await end_if_cancelled(ignore())
