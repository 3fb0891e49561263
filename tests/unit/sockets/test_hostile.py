"""Connections that stay silent, never finish or break the protocol, on real sockets."""

import asyncio
import contextlib
import datetime as dt
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bench.device import CLOSE, TEXT, encode_frame
from clarion.http.certificates import DevelopmentTls, load_context
from clarion.settings.types import ListenAddress
from clarion.sockets.listener import SocketListener
from clarion.sockets.protocol import FRAME_LIMIT_BYTES, HELLO_LIMIT_BYTES
from clarion.telemetry.limited_log import LINES_LIMIT
from tests.processes import free_port
from tests.unit.sockets.echo import EchoEndpoint

PATIENCE_S = 60
UPGRADE = (
    b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PROTOCOL_ERROR = 1002
TOO_LARGE = 4413
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """An endpoint on two listeners, with and without TLS."""

    def __init__(self, folder: Path, **limits: float) -> None:
        self.tls = DevelopmentTls(folder)
        self.tls.ensure(dt.datetime.now(dt.UTC))
        self.endpoint = EchoEndpoint()
        self.listener = SocketListener(self.endpoint, **limits)  # type: ignore[arg-type]
        self.port, self.tls_port = free_port(), free_port()

    async def listen(self) -> None:
        context = load_context(self.tls.certificate, self.tls.key)
        await self.listener.listen(ListenAddress("localhost", self.port))
        await self.listener.listen(ListenAddress("127.0.0.1", self.tls_port), context)

    async def connect(self, *, upgrade: bool = True) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        if upgrade:
            writer.write(UPGRADE)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        return reader, writer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    opened = Server(tmp_path)
    await opened.listen()
    yield opened
    await opened.listener.stop(1.0)


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[Server]:
    opened = Server(tmp_path, upgrade_limit_s=0.3)
    await opened.listen()
    yield opened
    await opened.listener.stop(1.0)


async def code_of(connection: Connection) -> int:
    """Return the code with which the server closes."""
    reader, writer = connection
    frame = await asyncio.wait_for(reader.readexactly(4), PATIENCE_S)
    await asyncio.wait_for(reader.read(), PATIENCE_S)  # and it disconnects
    writer.close()
    assert frame[0] == 0x80 | CLOSE
    return int(struct.unpack(">H", frame[2:])[0])


async def wait_for_end(connection: Connection) -> None:
    reader, writer = connection
    await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()


@pytest.mark.parametrize("data", [b"", b"GET /echo HT", b"GET /echo HTTP/1.1\r\nHost: x\r\n"])
async def test_a_connection_that_is_not_upgraded_in_time_is_closed(
    impatient: Server, data: bytes
) -> None:
    reader, writer = await impatient.connect(upgrade=False)
    writer.write(data)
    await wait_for_end((reader, writer))
    assert len(impatient.listener.newcomers) == 0


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half"])
async def test_a_handshake_of_tls_that_does_not_end_is_closed(
    impatient: Server, data: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.tls_port)
    writer.write(data)
    await asyncio.sleep(0.05)
    assert len(impatient.listener.newcomers) == 1
    await wait_for_end((reader, writer))
    assert len(impatient.listener.newcomers) == 0


async def test_a_connection_that_is_silent_after_the_handshake_of_tls_is_closed(
    impatient: Server,
) -> None:
    context = ssl.create_default_context(cafile=str(impatient.tls.ca))
    connection = await asyncio.open_connection(
        "127.0.0.1", impatient.tls_port, ssl=context, server_hostname="localhost"
    )
    await wait_for_end(connection)
    assert len(impatient.listener.newcomers) == 0


async def test_one_that_was_upgraded_stays_also_over_tls(impatient: Server) -> None:
    context = ssl.create_default_context(cafile=str(impatient.tls.ca))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", impatient.tls_port, ssl=context, server_hostname="localhost"
    )
    writer.write(UPGRADE)
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    await asyncio.sleep(0.5)
    writer.write(encode_frame(TEXT, b'{"type":"say","text":"still here"}'))
    assert (await asyncio.wait_for(reader.readexactly(12), PATIENCE_S))[2:] == b"still here"
    writer.close()


async def test_clients_that_are_not_tls_leave_nothing_behind(server: Server) -> None:
    connection = await asyncio.open_connection("127.0.0.1", server.tls_port)
    connection[1].write(UPGRADE)
    await wait_for_end(connection)
    await asyncio.sleep(0.05)
    assert len(server.listener.newcomers) == 0


@pytest.mark.parametrize(
    "payload",
    [b"\x03", *(struct.pack(">H", code) for code in (0, 999, 1004, 1005, 1006, 1015, 5000))],
)
async def test_a_close_that_is_not_valid_is_1002_and_not_echoed(
    server: Server, payload: bytes
) -> None:
    connection = await server.connect()
    connection[1].write(encode_frame(CLOSE, payload))
    assert await code_of(connection) == PROTOCOL_ERROR


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
async def test_a_close_that_is_valid_is_echoed(server: Server, code: int) -> None:
    connection = await server.connect()
    connection[1].write(encode_frame(CLOSE, struct.pack(">H", code)))
    assert await code_of(connection) == code


def begin_frame(size: int) -> bytes:
    return struct.pack(">BBQ4s", 0x80 | TEXT, 0x80 | 127, size, bytes(4))


@pytest.mark.parametrize("claimed", [FRAME_LIMIT_BYTES, 1 << 20, 1 << 40])
async def test_a_frame_is_refused_before_it_is_complete(server: Server, claimed: int) -> None:
    connection = await server.connect()
    connection[1].write(begin_frame(claimed) + bytes(HELLO_LIMIT_BYTES + 1))
    assert await code_of(connection) in {TOO_LARGE, 1009}


async def test_what_comes_after_a_refused_frame_is_read_and_not_kept(server: Server) -> None:
    """A reset would take the code from a client that is still sending."""
    reader, writer = await server.connect()
    (socket,) = server.endpoint.sockets
    writer.write(begin_frame(1 << 22))
    for _ in range(32):
        writer.write(bytes(65_536))
        await writer.drain()
    assert await code_of((reader, writer)) == TOO_LARGE
    assert socket.unread < 4 * HELLO_LIMIT_BYTES
    assert len(server.endpoint.sockets) == 0


async def test_an_authenticated_client_may_send_more_but_not_without_end(server: Server) -> None:
    connection = await server.connect()
    (socket,) = server.endpoint.sockets
    socket.mark_authenticated()
    socket.session.is_ready = True
    assert len(server.listener.newcomers) == 0
    text = b"x" * (FRAME_LIMIT_BYTES - 30)
    connection[1].write(encode_frame(TEXT, b'{"type":"say","text":"%s"}' % text))
    assert (await asyncio.wait_for(connection[0].readexactly(4), PATIENCE_S))[0] == 0x80 | TEXT
    await connection[0].readexactly(len(text))
    connection[1].write(begin_frame(1 << 20) + bytes(FRAME_LIMIT_BYTES + 100))
    assert await code_of(connection) == TOO_LARGE


async def test_one_more_of_an_address_closes_its_oldest(tmp_path: Path) -> None:
    server = Server(tmp_path, per_address=2)
    await server.listen()
    try:
        first, second, third = [await server.connect() for _ in range(3)]
        await wait_for_end(first)
        assert len(server.endpoint.sockets) == 2
        for _, writer in (second, third):
            writer.close()
    finally:
        await server.listener.stop(1.0)


async def test_breaches_of_the_protocol_are_logged_as_lines_of_ours_and_few(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as lines:
        for _ in range(2 * LINES_LIMIT):
            connection = await server.connect()
            connection[1].write(b"\x83\x80aaaa")
            assert await code_of(connection) == PROTOCOL_ERROR
        for garbage in (b"\xff\xff\r\n\r\n", b"GET /echo HTTP/1.1\r\nHost: \xff\r\n\r\n"):
            reader, writer = await server.connect(upgrade=False)
            writer.write(garbage)
            await wait_for_end((reader, writer))
    assert [line["event"] for line in lines] == ["websocket_fault"] * LINES_LIMIT
    assert capfd.readouterr() == ("", "")


async def test_a_stop_closes_what_was_never_upgraded(server: Server) -> None:
    connection = await server.connect(upgrade=False)
    while not len(server.listener.newcomers):  # noqa: ASYNC110 - nobody signals that
        await asyncio.sleep(0.01)
    await server.listener.stop(1.0)
    await wait_for_end(connection)


async def test_a_full_node_closes_newcomers_and_keeps_those_who_are_known(tmp_path: Path) -> None:
    server = Server(tmp_path, total=3)
    await server.listen()
    opened = [await server.connect() for _ in range(2)]
    for socket in server.endpoint.sockets:
        socket.mark_authenticated()
    silent = await server.connect(upgrade=False)
    stranger = await server.connect(upgrade=False)
    assert await asyncio.wait_for(silent[0].read(), PATIENCE_S) == b""
    assert len(server.listener.newcomers) == 1
    known = await server.connect()  # in the place of the stranger
    assert await asyncio.wait_for(stranger[0].read(), PATIENCE_S) == b""
    for socket in server.endpoint.sockets:
        socket.mark_authenticated()
    refused = await server.connect(upgrade=False)
    assert await asyncio.wait_for(refused[0].read(), PATIENCE_S) == b""
    assert len(server.endpoint.sockets) == 3
    await server.listener.stop(1.0)
    for _, writer in (*opened, silent, stranger, known, refused):
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
