"""GOAWAY over HTTP/2, in each order of frames: what the server did not process was not sent."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from ipaddress import ip_network
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded
from h2.settings import SettingCodes

from clarion.channels.http_clients import HttpClients, NoAnswer, NotConnected, ProviderRequest
from clarion.channels.targets import Targets
from tests.replacing import replace
from tests.unit.channels.http_peers import serve_tls

SHUTDOWN = b'{"reason":"Shutdown"}'
TIMEOUT_S = 30.0


class When(Enum):
    """What a GOAWAY comes after."""

    GREETING = auto()  # the settings of the server: before any request
    HEAD = auto()  # the head of a request: before its body
    REQUEST = auto()  # the whole of as many requests as are wanted


class Then(Enum):
    """What happens to the connection after it."""

    LINGER = auto()  # it is read until the client closes it, as RFC 9113 has it
    ANSWER = auto()  # the same, and the last stream that is processed gets its answer
    CLOSE = auto()
    RESET = auto()


@dataclass(frozen=True, kw_only=True)
class GoAway:
    """One GOAWAY; the first `answered` requests of a connection are answered before it."""

    when: When = When.REQUEST
    then: Then = Then.LINGER
    error: ErrorCodes = ErrorCodes.NO_ERROR
    debug: bytes | None = None
    answered: int = 0
    wanted: int = 1
    processed: int = 0  # of those that are wanted
    streams: int = 100  # that a client may open at once


@dataclass
class Peer:
    """An HTTP/2 server, each of whose connections ends by a GOAWAY, or only the first."""

    go_away: GoAway
    tls: ssl.SSLContext
    is_every: bool = True
    port: int = 0
    connections: int = 0
    requests: int = 0
    answered: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # a connection, by the client
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    is_closed: bool = False

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            writer.transport.abort()
            return
        self.connections += 1
        is_last = self.connections > 1 and not self.is_every
        go_away = GoAway(answered=1_000) if is_last else self.go_away
        connection = _Connection(self, go_away, reader, writer)
        self.tasks[asyncio.create_task(connection.run())] = writer

    async def close(self) -> None:
        """Cut all connections, also those whose task has not begun, and those still to come."""
        self.is_closed = True
        for task, writer in self.tasks.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Connection:
    def __init__(
        self,
        peer: Peer,
        go_away: GoAway,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._peer = peer
        self._go_away = go_away
        self._reader = reader
        self._writer = writer
        self._machine = H2Connection(H2Configuration(client_side=False))
        self._ended: list[int] = []  # the streams of requests that are there as a whole

    async def run(self) -> None:
        with suppress(OSError):
            await self._serve()
            await self._finish()
        self._writer.transport.abort()

    async def _serve(self) -> None:
        """Read until the GOAWAY is due, and send it."""
        self._machine.initiate_connection()
        self._machine.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self._go_away.streams})
        is_due = self._go_away.when is When.GREETING
        while not is_due:
            await self._flush()
            if not (data := await self._reader.read(65_536)):
                return
            # All of what was read: later events are of requests that the GOAWAY is about, too.
            found = [self._on_event(each) for each in self._machine.receive_data(data)]
            is_due = any(found)
        self._send_go_away()
        await self._flush()

    def _on_event(self, event: Event) -> bool:
        """Take an event; return whether the GOAWAY is due."""
        wanted = self._go_away
        match event:
            case RequestReceived():
                return wanted.when is When.HEAD
            case DataReceived():
                length = event.flow_controlled_length
                self._machine.acknowledge_received_data(length, event.stream_id)
            case StreamEnded():
                self._peer.requests += 1
                if len(self._ended) < wanted.answered:
                    self._answer(event.stream_id)
                self._ended.append(event.stream_id)
                is_enough = len(self._ended) >= wanted.answered + wanted.wanted
                return wanted.when is When.REQUEST and is_enough
            case _:
                pass
        return False

    def _send_go_away(self) -> None:
        wanted, last = self._go_away, self._last_processed
        if wanted.then is Then.ANSWER:
            self._answer(last)
        self._machine.close_connection(wanted.error, wanted.debug, last_stream_id=last)

    @property
    def _last_processed(self) -> int:
        processed = self._ended[: self._go_away.answered + self._go_away.processed]
        return processed[-1] if processed else 0

    def _answer(self, stream: int) -> None:
        self._peer.answered += 1
        self._machine.send_headers(stream, [(":status", "200")], end_stream=True)

    async def _finish(self) -> None:
        match self._go_away.then:
            case Then.LINGER | Then.ANSWER:
                while await self._reader.read(65_536):
                    pass
                self._peer.ended.set()
            case Then.CLOSE:
                self._writer.close()
                await self._writer.wait_closed()
            case Then.RESET:
                connection = self._writer.get_extra_info("socket")
                forget = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, forget)

    async def _flush(self) -> None:
        self._writer.write(self._machine.data_to_send())
        await self._writer.drain()


@dataclass
class Client:
    """Posts to the peer."""

    clients: HttpClients
    peer: Peer
    ca_path: str

    async def post(self, timeout_s: float = TIMEOUT_S) -> int | type[Exception]:
        """Return the status, or the class of the error."""
        try:
            url = f"https://localhost:{self.peer.port}/"
            answer = await self.clients.post(
                ProviderRequest(url, {}, b"hello", timeout_s, ca_path=self.ca_path)
            )
        except (NotConnected, NoAnswer) as error:
            return type(error)
        return answer.status

    async def post_many(self, count: int) -> list[int | type[Exception]]:
        return await asyncio.gather(*(self.post() for _ in range(count)))


@asynccontextmanager
async def going_away(
    folder: Path, go_away: GoAway, *, is_every: bool = True
) -> AsyncIterator[Client]:
    tls, ca_path = serve_tls(folder)
    peer = Peer(go_away, tls, is_every)
    clients = HttpClients(
        Targets([ip_network("127.0.0.0/8")], resolver=lambda _host: ["127.0.0.1"])
    )
    server = await asyncio.start_server(peer.accept, "127.0.0.1", 0, ssl=tls)
    peer.port = server.sockets[0].getsockname()[1]
    # Asked for before `close`, it waits for the connections, too: also those of unfinished TLS.
    closed = asyncio.create_task(server.wait_closed())
    try:
        yield Client(clients, peer, ca_path)
    finally:
        await clients.close()
        server.close()
        await peer.close()
        await asyncio.wait([closed], timeout=TIMEOUT_S)


REASONS = {
    "no_error": GoAway(),
    "with_text": GoAway(debug=SHUTDOWN),
    "error": GoAway(error=ErrorCodes.ENHANCE_YOUR_CALM),
    "error_with_text": GoAway(error=ErrorCodes.INTERNAL_ERROR, debug=b"overloaded"),
}


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("when", When, ids=lambda each: each.name.lower())
@pytest.mark.parametrize("reason", REASONS)
async def test_what_no_connection_processes_was_not_sent(
    tmp_path: Path, reason: str, when: When, count: int
) -> None:
    async with going_away(tmp_path, replace(REASONS[reason], when=when)) as client:
        assert set(await client.post_many(count)) == {NotConnected}


@pytest.mark.parametrize("reason", REASONS)
async def test_what_waits_for_a_stream_when_the_connection_ends_was_not_sent(
    tmp_path: Path, reason: str
) -> None:
    """As with Apple, who allows a new connection one stream."""
    go_away = replace(REASONS[reason], streams=1, answered=1)
    async with going_away(tmp_path, go_away) as client:
        assert await client.post() == 200
        found = await client.post_many(5)
    # A new connection answers its first request. After an error, none is opened.
    assert set(found) <= {NotConnected, 200}
    assert NotConnected in found or go_away.error is ErrorCodes.NO_ERROR


async def test_of_several_requests_only_those_after_the_last_processed_were_not_sent(
    tmp_path: Path,
) -> None:
    error = ErrorCodes.INTERNAL_ERROR  # so that the client does not repeat them by itself
    go_away = GoAway(answered=1, wanted=5, processed=1, then=Then.ANSWER, error=error)
    async with going_away(tmp_path, go_away) as client:
        assert await client.post() == 200
        found = await client.post_many(5)
        assert sorted(found, key=str) == [200, *[NotConnected] * 4]
        assert (client.peer.connections, client.peer.requests) == (1, 6)


async def test_a_request_that_was_processed_may_have_arrived_if_no_answer_follows(
    tmp_path: Path,
) -> None:
    error = ErrorCodes.INTERNAL_ERROR
    go_away = GoAway(answered=1, wanted=5, processed=2, then=Then.CLOSE, error=error)
    async with going_away(tmp_path, go_away) as client:
        assert await client.post() == 200
        found = await client.post_many(5)
    assert sorted(map(str, found)) == sorted(map(str, [NoAnswer] * 2 + [NotConnected] * 3))


@pytest.mark.parametrize("when", [When.HEAD, When.REQUEST], ids=lambda each: each.name.lower())
async def test_the_next_connection_takes_what_the_first_did_not_process(
    tmp_path: Path, when: When
) -> None:
    go_away = GoAway(when=when, debug=SHUTDOWN)
    async with going_away(tmp_path, go_away, is_every=False) as client:
        assert await client.post() == 200
        assert client.peer.connections == 2


@pytest.mark.parametrize("when", When, ids=lambda each: each.name.lower())
async def test_what_the_next_connection_did_not_get_was_not_sent(
    tmp_path: Path, when: When
) -> None:
    """Of many requests at once, one can be given to a connection that ends, and to no other."""
    go_away = GoAway(when=when, debug=SHUTDOWN)
    async with going_away(tmp_path, go_away, is_every=False) as client:
        found = await client.post_many(5)
        assert set(found) <= {200, NotConnected}
        assert found.count(200) == client.peer.answered


async def test_a_connection_that_ended_while_it_was_idle_is_not_used_again(tmp_path: Path) -> None:
    go_away = GoAway(answered=1, wanted=0)
    async with going_away(tmp_path, go_away, is_every=False) as client:
        assert await client.post() == 200
        async with asyncio.timeout(TIMEOUT_S):
            await client.peer.ended.wait()
        assert await client.post() == 200
        assert (client.peer.connections, client.peer.requests) == (2, 2)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET], ids=lambda each: each.name.lower())
@pytest.mark.parametrize("when", When, ids=lambda each: each.name.lower())
async def test_a_connection_that_is_cut_after_a_goaway_answers_nothing(
    tmp_path: Path, when: When, then: Then, count: int
) -> None:
    """If the client writes before it has read the GOAWAY, it fails and never reads it."""
    async with going_away(tmp_path, GoAway(when=when, then=then)) as client:
        assert set(await client.post_many(count)) <= {NotConnected, NoAnswer}
