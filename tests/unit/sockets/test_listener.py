"""The listener with real sockets: routes, heart-beat, stop."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from clarion.settings.types import ListenAddress
from clarion.sockets.listener import SocketListener
from clarion.sockets.protocol import HEARTBEAT_S, PING, SILENCE_LIMIT_MS
from tests.processes import free_port
from tests.unit.sockets.echo import EchoEndpoint

LIMIT_S = 100


class Server:
    """Two endpoints on one listener."""

    def __init__(self) -> None:
        self.one, self.two = EchoEndpoint(b"/one"), EchoEndpoint(b"/two")
        self.listener = SocketListener(self.one, self.two)
        self.port = free_port()

    @asynccontextmanager
    async def connected(self, path: str) -> AsyncIterator[ClientConnection]:
        url = f"ws://127.0.0.1:{self.port}{path}"
        async with connect(url, ping_interval=None, close_timeout=1) as connection:
            yield connection


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.listener.listen(ListenAddress("127.0.0.1", server.port))
    yield server
    await server.listener.stop(1.0)


async def test_a_gentle_stop_closes_sockets_one_by_one(server: Server) -> None:
    """Within half of the grace period, and all with 1012."""
    count = 40
    closed: list[float] = []
    clock = asyncio.get_running_loop().time

    async def hold() -> None:
        async with server.connected("/one") as connection:
            with pytest.raises(ConnectionClosed, match="1012"):
                await connection.recv()
            closed.append(clock())

    clients = [asyncio.create_task(hold()) for _ in range(count)]
    async with asyncio.timeout(LIMIT_S):
        while len(server.one.sockets) < count:  # noqa: ASYNC110 - the endpoint signals nobody
            await asyncio.sleep(0.01)
    began = clock()
    await server.listener.stop(LIMIT_S, is_gentle=True)
    await asyncio.wait_for(asyncio.gather(*clients), LIMIT_S)
    assert len(closed) == count
    # 40 sockets at 200 a second: 0.2 s. The last third is not closed with the first one.
    assert closed[-1] - closed[0] > 0.05
    assert clock() - began < LIMIT_S / 2


async def test_a_path_leads_to_its_endpoint(server: Server) -> None:
    async with server.connected("/two?after=5") as connection:
        await connection.send('{"type":"say","text":"hello"}')
        assert await asyncio.wait_for(connection.recv(), LIMIT_S) == "hello"
        assert (server.one.calls, server.two.calls) == ([], ["connected /two?after=5"])
        assert (len(server.one.sockets), len(server.two.sockets)) == (0, 1)


async def test_another_path_is_refused(server: Server) -> None:
    with pytest.raises(InvalidStatus):
        async with server.connected("/three"):
            pass


async def test_it_knows_the_descriptors_of_its_connections(server: Server) -> None:
    async with server.connected("/one"), server.connected("/two"):
        ports = {_port_of(each) for each in server.listener.descriptors}
        assert (len(server.listener.descriptors), ports) == (2, {server.port})
    async with asyncio.timeout(LIMIT_S):
        while server.listener.descriptors:  # noqa: ASYNC110 - the listener signals nobody
            await asyncio.sleep(0.01)


def _port_of(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as opened:
        port: int = opened.getsockname()[1]
        return port


async def test_a_tick_reaches_all_sockets_and_endpoints(server: Server) -> None:
    async with server.connected("/one") as one, server.connected("/two") as two:
        server.two.time.advance(HEARTBEAT_S * 1000)
        await server.listener.tick()
        assert await asyncio.wait_for(two.recv(), LIMIT_S) == PING.decode()
        server.one.time.advance(SILENCE_LIMIT_MS)
        await server.listener.tick()
        with pytest.raises(ConnectionClosed, match="4408"):
            await asyncio.wait_for(one.recv(), LIMIT_S)
    assert f"tick {server.one.clock.now()}" in server.one.calls
    assert f"tick {server.two.clock.now()}" in server.two.calls


@pytest.mark.parametrize("step_s", [61, -3_600])
async def test_a_clock_that_is_set_neither_ends_a_connection_nor_delays_its_heart_beat(
    server: Server, step_s: int
) -> None:
    async with server.connected("/one") as connection:
        server.one.time.step(step_s * 1000)
        await server.listener.tick()
        server.one.time.advance(HEARTBEAT_S * 1000)
        await server.listener.tick()
        assert await asyncio.wait_for(connection.recv(), LIMIT_S) == PING.decode()
        assert not server.one.calls.count("disconnected")


async def test_a_stop_closes_with_1012_and_finishes_the_endpoints(server: Server) -> None:
    async with server.connected("/one") as connection:
        await server.listener.stop(0.5)
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(connection.recv(), LIMIT_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
    assert server.one.calls[-1] == server.two.calls[-1] == "finish 0.5"
    with pytest.raises(ConnectionRefusedError):
        async with server.connected("/one"):
            pass


async def test_a_stop_cuts_a_client_that_does_not_answer(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"GET /one HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    await server.listener.stop(0.05)
    await asyncio.wait_for(reader.read(), LIMIT_S)
    assert len(server.one.sockets) == 0
    writer.close()
