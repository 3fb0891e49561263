"""HTTP servers on loopback that misbehave as they are told: a script for each connection."""

import asyncio
import datetime as dt
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded

from clarion.http.certificates import DevelopmentTls

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
# A response that never ends comes to this after each byte.
PAUSE_S = 0.05


@dataclass(frozen=True)
class Request:
    head: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode().split("\r\n")[1:-2]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


@dataclass
class Peer:
    """A server that listens, and what it got."""

    port: int = 0
    scheme: str = "http"
    connections: int = 0
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/hook?token=hidden"

    def note(self, request: Request) -> None:
        self.requests.append(request)
        self.arrived.set()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Script = Callable[[Peer, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    script: Script, *, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Peer]:
    peer = Peer(scheme="https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer.connections += 1
        try:
            with suppress(OSError, EOFError):
                await script(peer, reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)

    async with await asyncio.start_server(accept, address, port, ssl=tls) as server:
        peer.port = server.sockets[0].getsockname()[1]
        try:
            yield peer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def receive(peer: Peer, reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    request = Request(head, b"")
    length = int(request.headers.get("content-length", "0"))
    request = Request(head, await reader.readexactly(length))
    peer.note(request)
    return request


def answering(*answers: bytes) -> Script:
    """Send these answers in turn, the last one again and again."""
    left = list(answers)

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await receive(peer, reader)
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()

    return script


def answer(status: int, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Told\r\n{lines}content-length: 2\r\n\r\nno".encode()


def breaking_off(part: bytes = b"", *, reads: bool = True) -> Script:
    """Send a part of an answer, and reset the connection."""

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if reads:
            await receive(peer, reader)
        writer.write(part)
        await writer.drain()
        if part:
            await asyncio.sleep(PAUSE_S)  # so that it is not lost with the connection
        reset(writer)

    return script


def trickling(start: bytes) -> Script:
    """Send a part of an answer, and go on a byte at a time without an end."""

    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await receive(peer, reader)
        writer.write(start)
        while True:
            await writer.drain()
            await asyncio.sleep(PAUSE_S)
            writer.write(b"a")

    return script


async def keep_silent(
    peer: Peer, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
) -> None:
    """Take the request, and answer nothing."""
    await receive(peer, reader)
    await reader.read()


async def ignore(_peer: Peer, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Take whatever comes."""
    while await reader.read(65536):
        pass


def reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that answers no attempt to connect: the queue of its listener is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.settimeout(0)
            each.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for each in waiting:
            each.close()


def serve_tls(folder: Path, *, age_days: int = 0) -> tuple[ssl.SSLContext, str]:
    """Return a context with a certificate for `localhost`, and the path of its authority."""
    files = DevelopmentTls(folder)
    files.ensure(dt.datetime.now(dt.UTC) - dt.timedelta(days=age_days))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context, str(files.ca)


class Http2Script:
    """What an HTTP/2 server does when the whole of a request is there."""

    def __init__(self, http2: H2Connection, transport: asyncio.StreamWriter) -> None:
        self.http2 = http2
        self.writer = transport

    def answer(self, stream: int) -> None:
        self.http2.send_headers(stream, [(":status", "200")], end_stream=True)

    def refuse(self, stream: int) -> None:
        self.http2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)

    def fail(self, stream: int) -> None:
        self.http2.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)

    def go_away_before(self, _stream: int) -> None:
        self._go_away(ErrorCodes.NO_ERROR, 0)

    def go_away_after(self, stream: int) -> None:
        self._go_away(ErrorCodes.NO_ERROR, stream)

    def go_away_with_error(self, stream: int) -> None:
        self._go_away(ErrorCodes.INTERNAL_ERROR, stream)

    def break_off(self, stream: int) -> None:
        self.http2.send_headers(stream, [(":status", "200"), ("content-length", "100")])
        self.http2.send_data(stream, b"half")
        self._close()

    def _go_away(self, error: ErrorCodes, last_stream: int) -> None:
        self.http2.close_connection(error, last_stream_id=last_stream)
        self._close()

    def _close(self) -> None:
        self.writer.write(self.http2.data_to_send())
        self.writer.close()


def speaking_http2(action: Callable[[Http2Script, int], None]) -> Script:
    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        http2 = H2Connection(H2Configuration(client_side=False))
        http2.initiate_connection()
        actions = Http2Script(http2, writer)
        while not writer.is_closing():
            writer.write(http2.data_to_send())
            for event in http2.receive_data(await read_some(reader)):
                if isinstance(event, RequestReceived):
                    peer.note(Request(b"", b""))
                elif isinstance(event, DataReceived):
                    http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded):
                    action(actions, event.stream_id)

    return script


async def read_some(reader: asyncio.StreamReader) -> bytes:
    if data := await reader.read(65536):
        return data
    raise EOFError
