"""What a restart keeps: messages and ids. And what a provider receives while the server stops."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from tests.conformance.clients.http2 import PATIENCE_S, Http2, Request, connected, connected_as
from tests.conformance.device import Api, Device, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer, Installation
from tests.conformance.wire.prepared import push

DATA, HEADERS, GOAWAY = 0, 1, 7
HEADER_BYTES = 9


@pytest.fixture(scope="module")
def server(installation: Installation) -> Iterator[ConformanceServer]:
    """A server of our own, to be stopped."""
    with ConformanceServer(installation) as running:
        yield running


async def accept(server: ConformanceServer, request: Request) -> str:
    async with connected(server.tls_port, server.ca_path) as client:
        answer = await client.ask(request)
    assert answer.refusal == (200, None)
    return answer.headers["apns-id"].decode()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_an_id_is_known_over_a_restart(
    server: ConformanceServer, api: Api, provider: Provider, device: Device, *, end: str
) -> None:
    """Of two messages one has arrived; both are pushed again, and neither arrives twice."""
    ids = [str(uuid.uuid4()) for _ in range(2)]
    arrived, waiting = (push(provider, device.token).but("apns-id", each) for each in ids)
    async with listening(server, device) as socket:
        await accept(server, arrived)
        assert (await socket.take())["id"] == ids[0]
        await api.wait_for(device, ids[0], "delivered")
    await accept(server, waiting)
    await asyncio.to_thread(getattr(server, end))
    await asyncio.to_thread(server.start)
    assert [await accept(server, each) for each in (arrived, waiting)] == ids
    async with listening(server, device) as socket:
        last = await accept(server, push(provider, device.token))
        assert await socket.take_until(last) == ids[1:]


class Unresponsive(Http2):
    """Receives without answering: not even the ping that lets a server close the connection."""

    is_unresponsive = False
    received = b""

    def data_received(self, data: bytes) -> None:
        if not self.is_unresponsive:
            super().data_received(data)
            return
        self.received += data
        self._changed.set()

    async def receive(self, frame_type: int, stream: int, holding: bytes = b"") -> None:
        """Wait for a frame of this type."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._has_received(frame_type, stream, holding):
                self._changed.clear()
                await self._changed.wait()

    def _has_received(self, frame_type: int, stream: int, holding: bytes) -> bool:
        rest = self.received
        while len(rest) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(rest[:3], "big")
            is_it = rest[3] == frame_type and int.from_bytes(rest[5:9], "big") == stream
            if is_it and holding in rest[HEADER_BYTES:end]:
                return True
            rest = rest[end:]
        return False


async def test_a_server_that_stops_announces_it_and_finishes_what_it_began(
    server: ConformanceServer, provider: Provider, device: Device
) -> None:
    good = push(provider, device.token)
    try:
        async with connected_as(Unresponsive, server.tls_port, server.ca_path) as client:
            begun = client.begin(good)
            assert (await client.ask(good)).status == 200
            client.is_unresponsive = True
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            await client.receive(GOAWAY, 0)
            late = client.begin(good)
            client.send_part(late, good.body, is_last=True)
            await client.receive(DATA, late, b'{"reason":"Shutdown"}')
            client.send_part(begun, good.body, is_last=True)
            await client.receive(HEADERS, begun)
        await stopping
    finally:
        await asyncio.to_thread(server.start)
