"""What outlives the server: messages and ids. And what a provider hears when it goes."""

import asyncio
import uuid

import pytest

from tests.conformance.clients.http2 import PATIENCE_S, Http2, Request, connected, connected_as
from tests.conformance.device import Api, Device, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.conformance.wire.scene import push

DATA, HEADERS, GOAWAY = 0, 1, 7
HEADER_BYTES = 9


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


class Deaf(Http2):
    """Hears without heeding: it does not answer the ping that lets a server close the door."""

    is_deaf = False
    heard = b""

    def data_received(self, data: bytes) -> None:
        if not self.is_deaf:
            super().data_received(data)
            return
        self.heard += data
        self._changed.set()

    async def hear(self, kind: int, stream: int, holding: bytes = b"") -> None:
        """Wait for a frame of this kind."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._has_heard(kind, stream, holding):
                self._changed.clear()
                await self._changed.wait()

    def _has_heard(self, kind: int, stream: int, holding: bytes) -> bool:
        rest = self.heard
        while len(rest) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(rest[:3], "big")
            is_it = rest[3] == kind and int.from_bytes(rest[5:9], "big") == stream
            if is_it and holding in rest[HEADER_BYTES:end]:
                return True
            rest = rest[end:]
        return False


async def test_a_server_that_stops_says_so_and_finishes_what_it_began(
    server: ConformanceServer, provider: Provider, device: Device
) -> None:
    good = push(provider, device.token)
    try:
        async with connected_as(Deaf, server.tls_port, server.ca_path) as client:
            begun = client.begin(good)
            assert (await client.ask(good)).status == 200
            client.is_deaf = True
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            await client.hear(GOAWAY, 0)
            late = client.begin(good)
            client.send_part(late, good.body, is_last=True)
            await client.hear(DATA, late, b'{"reason":"Shutdown"}')
            client.send_part(begun, good.body, is_last=True)
            await client.hear(HEADERS, begun)
        await stopping
    finally:
        await asyncio.to_thread(server.start)
