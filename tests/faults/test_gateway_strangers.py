"""T28 for the gateway: strangers who say nothing or never finish keep nobody out."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bench.device import TEXT, encode_frame
from clarion.sockets.newcomers import UNAUTHENTICATED_LIMIT
from tests.faults.clarion_server import ClarionServer
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

PATIENCE_S = 60.0
HELLOS = {
    "/v1/gateway": b'{"type":"hello","token":"x","secret":"x"}',
    "/v1/me/socket": b'{"type":"hello","token":"x"}',
}
ADDRESSES = 5
MEBIBYTE = 1 << 20
FRAME_BYTES = 2 * MEBIBYTE
FRAME_HEADER = struct.pack(">BBQ4s", 0x80 | TEXT, 0x80 | 127, FRAME_BYTES, bytes(4))


class Stranger(asyncio.Protocol):
    """A connection that is upgraded and then says nothing, or only what the test has it send."""

    def __init__(self, path: str) -> None:
        self.upgraded = asyncio.Event()
        self.closed = asyncio.Event()
        self.answer = b""
        self.transport: asyncio.Transport
        self._path = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        if self.upgraded.is_set():
            self.answer += data
        self.upgraded.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.upgraded.set()
        self.closed.set()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ClarionServer]:
    async with ClarionServer(tmp_path) as opened:
        yield opened


async def arrive(server: ClarionServer, path: str, host: str = "127.0.0.1") -> Stranger:
    """Connect from an address of this machine."""
    loop = asyncio.get_running_loop()
    _, stranger = await loop.create_connection(
        lambda: Stranger(path), "127.0.0.1", server.gateway_port, local_addr=(host, 0)
    )
    async with asyncio.timeout(PATIENCE_S):
        await stranger.upgraded.wait()
    return stranger


async def say_hello(server: ClarionServer, path: str) -> bytes:
    """Return how a client is answered whom the server does not know."""
    stranger = await arrive(server, path)
    stranger.transport.write(encode_frame(TEXT, HELLOS[path]))
    async with asyncio.timeout(PATIENCE_S):
        while not stranger.answer and not stranger.closed.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    stranger.transport.abort()
    return stranger.answer


def resident_bytes(server: ClarionServer) -> int:
    pages = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.parametrize("path", HELLOS)
async def test_strangers_who_say_nothing_keep_nobody_out(
    server: ClarionServer, path: str, figures: Callable[[str], None]
) -> None:
    strangers = [
        await arrive(server, path, f"127.0.0.{2 + number % ADDRESSES}")
        for number in range(SIZES.strangers)
    ]
    left = [each for each in strangers if not each.closed.is_set()]
    began = time.monotonic()
    answer = await say_hello(server, path)
    took_ms = (time.monotonic() - began) * 1000
    figures(f"gateway: {SIZES.strangers:,} strangers at {path}: answered after {took_ms:.0f} ms")
    assert answer[2:4] == struct.pack(">H", 4401)
    assert len(left) <= UNAUTHENTICATED_LIMIT
    for each in strangers:
        each.transport.abort()


@pytest.mark.parametrize("path", HELLOS)
async def test_unfinished_frames_fill_no_memory(
    server: ClarionServer, path: str, figures: Callable[[str], None]
) -> None:
    before = resident_bytes(server)
    strangers = [await arrive(server, path) for _ in range(SIZES.unfinished_frames)]
    unfinished = FRAME_HEADER + bytes(FRAME_BYTES - 1)
    for each in strangers:
        each.transport.write(unfinished)
    async with asyncio.timeout(PATIENCE_S):
        while any(  # noqa: ASYNC110 - nobody signals that all is written
            each.transport.get_write_buffer_size() for each in strangers if not each.closed.is_set()
        ):
            await asyncio.sleep(0.05)
    await asyncio.sleep(1)  # what is in the buffers of the system is read
    grown = resident_bytes(server) - before
    figures(f"gateway: {len(strangers)} unfinished frames at {path}: {grown / MEBIBYTE:.0f} MiB")
    assert grown < 0.25 * MEBIBYTE * len(strangers)
    assert await server.is_ready()
    for each in strangers:
        each.transport.abort()
