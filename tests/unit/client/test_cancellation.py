"""A task that is cancelled while it asks a server ends, also if the answer comes in that moment."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from ipaddress import ip_network

import pytest

from clarion.channels.http_clients import HttpClients, ProviderRequest
from clarion.channels.targets import Targets
from clarion.client import AsyncClarion
from clarion.client.cancellation import end_if_cancelled
from tests.unit.channels.http_peers import OK, Peer, Script, listening, receive

Ask = Callable[[], Awaitable[object]]
# After the answer is written, a task is cancelled after so many steps of the loop.
STEPS = 40
TRIES = 20 * STEPS


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


def answering_with(answered: asyncio.Event) -> Script:
    """Answer each request, and set the event in the same step of the loop."""

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await receive(peer, reader)
            writer.write(OK.replace(b"ok", b"{}"))
            answered.set()

    return script


@pytest.mark.parametrize("asking", [provider, server])
async def test_a_cancellation_is_never_lost(
    asking: Callable[[int], AbstractAsyncContextManager[Ask]],
) -> None:
    """Steps of the loop are counted, not time: without a step the answer cannot have arrived."""
    cancelled, answered = Counter[int](), asyncio.Event()
    async with listening(answering_with(answered)) as peer, asking(peer.port) as ask:
        for turn in range(TRIES):
            answered.clear()
            task: asyncio.Future[object] = asyncio.ensure_future(ask())
            await answered.wait()
            for _ in range(turn % STEPS):
                await asyncio.sleep(0)
            if task.cancel():
                cancelled[turn % STEPS] += 1
                with pytest.raises(asyncio.CancelledError):
                    await task
    assert cancelled[0] == TRIES / STEPS


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
