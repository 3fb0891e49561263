"""A server that speaks HTTP/2 over TLS and nothing else, and can answer badly in every way."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

SLOW_S = 1.0
# Enough to connect and send on a machine that is busy.
BRIEFLY_S = 2.0
LONG_S = 30.0
HALF_REPLY_S = 0.2
PROMISED = b"x" * 100
SHUTDOWN = b'{"reason":"Shutdown"}'  # as Apple adds it to a GOAWAY


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, as it arrived, and the number of the connection that it came by."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Fault(Enum):
    """What happens instead of a reply, when the request has arrived."""

    SILENCE = auto()  # nothing
    RESET = auto()  # the connection is cut before any reply
    RESET_MID_BODY = auto()  # the connection is cut before the whole request was read
    RESET_STREAM = auto()  # the stream is cut in the middle of the reply
    HALF_REPLY = auto()  # the connection is cut in the middle of the reply
    REFUSED_STREAM = auto()  # the stream is refused; the request was not looked at
    GO_AWAY = auto()  # the connection ends; the request was not looked at
    SLOW = auto()  # the reply comes at a byte a second
    GARBAGE = auto()  # the reply is of no protocol
    ENDLESS = auto()  # the body of the reply never ends

    @property
    def wait_s(self) -> float:
        """How long a client should wait: briefly where waiting is all that ends it."""
        return BRIEFLY_S if self in (Fault.SILENCE, Fault.SLOW) else LONG_S


@dataclass
class _Partial:
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)


class Http2Peer:
    """Gives each request to a handler; faults that are due come first, one a request."""

    def __init__(self, handler: Callable[[Request], Reply]) -> None:
        self.requests: list[Request] = []
        self.faults: deque[Fault | Reply] = deque()
        self.always: Fault | Reply | None = None
        self.spared: frozenset[str] = frozenset()  # paths that no fault befalls
        self.broken_status = 200  # of the replies that faults break off
        self.protocols: list[str | None] = []  # that were agreed upon, one a connection
        self.port = 0
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        return len(self.protocols)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext, port: int = 0) -> AsyncIterator["Http2Peer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        tls = writer.get_extra_info("ssl_object")
        self.protocols.append(tls.selected_alpn_protocol())
        connection = _Connection(self, self.connections, reader, writer)
        try:
            with suppress(OSError, ProtocolError, asyncio.CancelledError):
                await connection.run()
        finally:
            writer.transport.abort()
            for slow in connection.slow:
                slow.cancel()

    def take(self, request: Request) -> Reply | Fault:
        self.requests.append(request)
        if request.path in self.spared:
            return self._handler(request)
        if self.always is not None:
            return self.always
        return self.faults.popleft() if self.faults else self._handler(request)


class _Connection:
    def __init__(
        self,
        peer: Http2Peer,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._peer = peer
        self._number = number
        self._reader = reader
        self._writer = writer
        self._machine = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._partial: dict[int, _Partial] = {}
        self._is_going_away = False
        self.slow: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        self._machine.initiate_connection()
        self._flush()
        while data := await self._reader.read(65_536):
            for event in self._machine.receive_data(data):
                if not self._on_event(event):
                    await self._writer.drain()
                    return
            self._flush()
            if self._is_going_away:
                await self._wait_for_end()

    def _on_event(self, event: events.Event) -> bool:
        """Take an event; False if the connection is to be cut."""
        if isinstance(event, events.RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            self._partial[event.stream_id] = _Partial(headers)
            if self._peer.always is Fault.RESET_MID_BODY:
                return headers[":path"] in self._peer.spared
        elif isinstance(event, events.DataReceived):
            self._partial[event.stream_id].body += event.data
            self._machine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, events.StreamEnded):
            return self._answer(event.stream_id)
        return True

    def _answer(self, stream: int) -> bool:
        partial = self._partial.pop(stream)
        request = Request(
            method=partial.headers[":method"],
            path=partial.headers[":path"],
            headers=partial.headers,
            body=bytes(partial.body),
            connection=self._number,
        )
        taken = self._peer.take(request)
        if isinstance(taken, Fault):
            return self._fail(stream, taken)
        self._reply(stream, taken)
        return True

    def _fail(self, stream: int, fault: Fault) -> bool:  # noqa: C901 - a case a fault
        match fault:
            case Fault.RESET | Fault.RESET_MID_BODY:
                return False
            case Fault.GARBAGE:
                self._flush()
                self._writer.write(b"220 mail.example.com ESMTP\r\n" * 100)
            case Fault.ENDLESS:
                self._machine.send_headers(stream, [(":status", str(self._peer.broken_status))])
                self.slow.append(asyncio.create_task(self._flood(stream)))
            case Fault.RESET_STREAM:
                self._begin(stream, PROMISED[:10])
                self._machine.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)
            case Fault.REFUSED_STREAM:
                self._machine.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            case Fault.HALF_REPLY:
                self._begin(stream, PROMISED[:10])
                self.slow.append(asyncio.create_task(self._cut_soon()))
            case Fault.GO_AWAY:
                self._machine.close_connection(ErrorCodes.NO_ERROR, SHUTDOWN, last_stream_id=0)
                self._is_going_away = True
            case Fault.SLOW:
                self._begin(stream, b"")
                self.slow.append(asyncio.create_task(self._trickle(stream)))
            case Fault.SILENCE:
                pass
        return True

    def _reply(self, stream: int, reply: Reply) -> None:
        headers = [(":status", str(reply.status)), *reply.headers.items()]
        self._machine.send_headers(stream, headers, end_stream=not reply.body)
        if reply.body:
            self._machine.send_data(stream, reply.body, end_stream=True)

    def _begin(self, stream: int, data: bytes) -> None:
        status = str(self._peer.broken_status)
        headers = [(":status", status), ("content-length", str(len(PROMISED)))]
        self._machine.send_headers(stream, headers)
        if data:
            self._machine.send_data(stream, data)

    async def _trickle(self, stream: int) -> None:
        for byte in PROMISED:
            await asyncio.sleep(SLOW_S)
            with suppress(ProtocolError):
                self._machine.send_data(stream, bytes([byte]))
                self._flush()

    async def _cut_soon(self) -> None:
        """Cut the connection when the client has read the beginning of the reply."""
        await asyncio.sleep(HALF_REPLY_S)
        self._writer.close()

    async def _wait_for_end(self) -> None:
        """Ignore what comes until the client has closed the connection, as RFC 9113 has it.

        If it were cut, the client could fail to write before it has read the GOAWAY.
        """
        while await self._reader.read(65_536):
            pass

    async def _flood(self, stream: int) -> None:
        with suppress(ProtocolError, OSError):
            while not self._writer.is_closing():
                size = min(self._machine.local_flow_control_window(stream), 16_384)
                if size:
                    self._machine.send_data(stream, b"x" * size)
                    self._flush()
                await asyncio.sleep(0.001)

    def _flush(self) -> None:
        self._writer.write(self._machine.data_to_send())
