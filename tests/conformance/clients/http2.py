"""A client that sees frames: HTTP/2 by prior knowledge, over TLS without ALPN.

It sends any request, faults included, and remembers how the answer came: in which frames,
and which of them ended the stream.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from tests.replacing import replace

PATIENCE_S = 60.0
Pairs = tuple[tuple[str, str], ...]


class NoAnswerError(Exception):
    """The stream or the connection ended without an answer."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, and ways to make it a little different."""

    method: str = "POST"
    path: str
    headers: Pairs = ()
    body: bytes = b""

    def but(self, name: str, value: str) -> "Request":
        """The same with this header, in place of the one it may have."""
        return self.without(name).also(name, value)

    def also(self, name: str, value: str) -> "Request":
        """The same with one header more, even if it has that already."""
        return replace(self, headers=(*self.headers, (name, value)))

    def without(self, name: str) -> "Request":
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0] != name))


@dataclass(kw_only=True)
class Answer:
    """An answer and the frames that it came in."""

    status: int = 0
    headers: dict[str, bytes] = field(default_factory=dict)
    data_frames: list[bytes] = field(default_factory=list)
    ended_by: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(self.data_frames)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str | None]:
        """Status and reason; the reason of a success is None."""
        return self.status, self.json["reason"] if self.body else None


class Http2(asyncio.Protocol):
    """One connection, on which any number of requests may be under way."""

    def __init__(self) -> None:
        self._machine = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._answers: dict[int, tuple[Answer, asyncio.Future[Answer]]] = {}
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self.is_open = True
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.streams_limit = 0
        self.resets: list[int] = []  # streams that the server broke off, answered or not

    async def ask(self, request: Request) -> Answer:
        """Send a request and wait for its whole answer."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self._answers) >= self.streams_limit and self.is_open:
                await self._wait_for_change()
            stream = self.begin(request)
            _, answered = self._answers[stream]
            await self._send_body(stream, request.body)
            return await answered

    async def ask_all(self, requests: Iterable[Request]) -> list[Answer]:
        """Ask all of it in parallel, and return the answers in order."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.ask(request)) for request in requests]
        return [task.result() for task in tasks]

    def begin(self, request: Request) -> int:
        """Open a stream with the headers of a request and return its number."""
        if not self.is_open:
            raise NoAnswerError("the connection is closed")
        stream = self._machine.get_next_available_stream_id()
        pseudo = [(":method", request.method), (":scheme", "https"), (":path", request.path)]
        authority = [(":authority", "localhost")]
        self._machine.send_headers(stream, [*pseudo, *authority, *request.headers])
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[stream] = (Answer(), answered)
        self._flush()
        return stream

    def send_part(self, stream: int, part: bytes, *, is_last: bool = False) -> None:
        """Send some of the body of a stream that was begun."""
        self._machine.send_data(stream, part, end_stream=is_last)
        self._flush()

    async def finish(self, stream: int, body: bytes) -> Answer:
        """Send the body of a stream that was begun, and wait for the answer."""
        _, answered = self._answers[stream]
        await self._send_body(stream, body)
        return await asyncio.wait_for(answered, PATIENCE_S)

    async def _send_body(self, stream: int, body: bytes) -> None:
        rest = memoryview(body)
        while stream in self._answers:
            size = min(len(rest), self._room(stream))
            if size or not rest:
                self._machine.send_data(stream, rest[:size].tobytes(), end_stream=size == len(rest))
                self._flush()
                rest = rest[size:]
                if not rest:
                    return
            else:
                await self._wait_for_change()

    def _room(self, stream: int) -> int:
        window = self._machine.local_flow_control_window(stream)
        return min(window, self._machine.max_outbound_frame_size)

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _flush(self) -> None:
        self._transport.write(self._machine.data_to_send())

    async def close(self) -> None:
        self._transport.abort()
        await asyncio.wait_for(self._lost.wait(), PATIENCE_S)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._machine.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        for event in self._machine.receive_data(data):
            self._take(event)
        self._flush()
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for stream in list(self._answers):
            self._fail(stream, f"connection lost: {exc}")
        self._changed.set()
        self._lost.set()

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RemoteSettingsChanged():
                self.streams_limit = self._machine.remote_settings.max_concurrent_streams
                assert SettingCodes.MAX_CONCURRENT_STREAMS in self._machine.remote_settings
                if not self.ready.done():
                    self.ready.set_result(None)
            case events.ResponseReceived():
                self._take_headers(event)
            case events.DataReceived():
                self._take_data(event)
            case events.StreamEnded():
                self._end(event.stream_id)
            case events.StreamReset():
                self.resets.append(event.stream_id)
                self._fail(event.stream_id, f"stream reset: {event.error_code}")
            case _:
                pass

    def _take_headers(self, event: events.ResponseReceived) -> None:
        answer = self._answers[event.stream_id][0]
        for name, value in event.headers:
            assert bytes(name).decode() not in answer.headers, f"{name!r} came twice"
            answer.headers[bytes(name).decode()] = bytes(value)
        answer.status = int(answer.headers.pop(":status"))
        answer.ended_by = "HEADERS" if event.stream_ended else ""

    def _take_data(self, event: events.DataReceived) -> None:
        answer = self._answers[event.stream_id][0]
        answer.data_frames.append(bytes(event.data))
        answer.ended_by = "DATA" if event.stream_ended else ""
        self._machine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def _end(self, stream: int) -> None:
        answer, answered = self._answers.pop(stream)
        if not answered.done():
            answered.set_result(answer)

    def _fail(self, stream: int, why: str) -> None:
        # A server may answer before it has read all, and then reset what it does not want.
        entry = self._answers.pop(stream, None)
        if entry is not None and not entry[1].done():
            entry[1].set_exception(NoAnswerError(why))


Client = TypeVar("Client", bound=Http2)


def connected(port: int, ca_path: Path) -> AbstractAsyncContextManager[Http2]:
    """Open a connection as APNs clients do; inside, the server's settings are known."""
    return connected_as(Http2, port, ca_path)


@asynccontextmanager
async def connected_as(protocol: type[Client], port: int, ca_path: Path) -> AsyncIterator[Client]:
    """Open a connection with a protocol of our own."""
    context = ssl.create_default_context(cafile=ca_path)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(protocol, "127.0.0.1", port, ssl=context)
    try:
        await asyncio.wait_for(client.ready, PATIENCE_S)
        yield client
    finally:
        await client.close()
