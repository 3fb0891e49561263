"""One connection: parses its requests, and has them answered one after the other."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from clarion.errors import ClarionError
from clarion.http import problems
from clarion.http.asgi import Headers, Scope
from clarion.http.plain.exchange import UNREAD_BYTES, Exchange
from clarion.http.plain.limits import OpenConnections, Waits
from clarion.http.plain.parser import RequestParser
from clarion.http.plain.proxy_protocol import Broken, read_header
from clarion.http.plain.starts import Starts
from clarion.http.plain.tunnel import Tunnel
from clarion.http.plain.wire import HeadWriter
from clarion.telemetry.logs import get_logger

# Written and not read by the client, before the application waits.
_UNWRITTEN_BYTES = 65_536
# Of a body that is not read, after its response; beyond it the connection is closed.
_DISCARDED_BYTES = 4 * 1024 * 1024
# Parsed before it is looked whether enough requests wait.
_PARSED_BYTES = 2_048
_ARRIVED = 4
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
_CERTAIN = len(b"PRI")  # no method begins like this


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What all connections of a listener share."""

    loop: asyncio.AbstractEventLoop
    app: Any
    connections: OpenConnections
    starts: Starts
    heads: HeadWriter
    max_header_bytes: int
    buffer: memoryview
    # Passes on a connection that begins with the preface of HTTP/2, and what has been read of it.
    pass_on: Callable[[Connection, bytes], Tunnel]
    # Whether connections from an address must begin with a header of the PROXY protocol.
    is_proxy: Callable[[str], bool]
    make_id: Callable[[], str]
    # Those that answer a request.
    running: set[Connection] = field(default_factory=set)


class Connection(asyncio.BufferedProtocol):
    """One connection without TLS. The `Link` of its exchanges, and the `Requests` of the front."""

    __slots__ = (
        "_arrived",
        "_discarded",
        "_drained",
        "_first",
        "_is_closing",
        "_is_last",
        "_is_paused",
        "_parser",
        "_receiving",
        "_refusal",
        "_rest",
        "_running",
        "_serving",
        "_task",
        "_transport",
        "_tunnel",
        "_tunnelled",
        "client",
        "descriptor",
        "host",
        "is_ending",
        "is_open",
        "is_provider",
        "is_proxied",
        "is_stalled",
        "key",
        "scheme",
        "server",
        "waits",
    )

    def __init__(self, serving: Serving, accepted: socket.socket, host: str) -> None:
        self.host = host
        self.waits: Waits | None = None
        self.is_open = True
        self.is_ending = False
        self.is_provider = False
        self.is_proxied = False
        self.scheme = "http"
        self.is_stalled = False
        self.client, self.server = _read_ends(accepted, host)
        self._serving = serving
        self.descriptor = accepted.fileno()
        self.key = object()
        self._tunnel: Tunnel | None = None  # of HTTP/2
        self._tunnelled = 0  # requests that run in it
        self._transport: asyncio.Transport | None = None
        self._parser: RequestParser | None = None
        self._arrived: deque[Exchange] = deque()
        self._receiving: Exchange | None = None  # its body is not complete
        self._running: Exchange | None = None
        self._first = b""  # until it is known which protocol it begins
        self._rest = b""  # received, and not parsed yet
        self._is_last = False  # what follows the last request is not read
        self._refusal: ClarionError | None = None  # of what could not be parsed
        self._is_closing = False  # the last response is written
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._discarded = 0

    @property
    def skips_bodies(self) -> bool:
        return self._tunnel is None

    # Of the event loop.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_UNWRITTEN_BYTES)
        if not self.is_open:  # dropped before it began
            transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self.leave()
        self.resume_writing()
        if self._running is not None:
            self._running.wake()
        if self._tunnel is not None:
            self._tunnel.close()

    def leave(self) -> None:
        """Stop counting the connection: it has ended."""
        self.is_open = False
        self._serving.connections.discard(self)

    def get_buffer(self, _size: int) -> memoryview:
        return self._serving.buffer

    def buffer_updated(self, size: int) -> None:
        if self._tunnel is not None:
            self._tunnel.pass_on(bytes(self._serving.buffer[:size]))
        elif self._is_last and self._receiving is None:
            self._discard(size)
        elif self._parser is None:
            self._begin(bytes(self._serving.buffer[:size]))
        else:
            self._parse(self._serving.buffer[:size])
            self._go_on()

    def eof_received(self) -> bool:
        """Return whether the connection stays open: a response is on its way to the client."""
        self.is_open = False
        if self._running is not None:
            self._running.wake()
        return self._running is not None

    def pause_writing(self) -> None:
        self._drained = self._serving.loop.create_future()
        if self._tunnel is not None:
            self._tunnel.pause()

    def resume_writing(self) -> None:
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None
            if self._tunnel is not None:
                self._tunnel.resume()
            elif self._running is None:
                self._go_on()

    # Of the exchanges.

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def write_head(self, status: int, headers: Headers, more: list[bytes]) -> bytes:
        return self._serving.heads.write(status, headers, more)

    @property
    def is_full(self) -> bool:
        return self._drained is not None

    async def wait_writable(self) -> None:
        while self._drained is not None:
            await asyncio.shield(self._drained)

    def pause_reading(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def read_on(self) -> None:
        # What was received before is parsed first.
        if self._is_paused and not self._rest and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # Of the tunnel.

    def begin_stream(self) -> None:
        self._first = b""
        self._tunnelled += 1
        self._serving.connections.work(self)

    def end_stream(self) -> None:
        self._tunnelled -= 1
        if self.is_stalled:
            self.drop()
        elif not self._tunnelled and self._transport is not None:
            self._wait()

    def finish(self) -> None:
        """Close when all is written."""
        self.leave()
        if self._transport is not None:
            self._transport.close()

    # Of the listener.

    def drop(self) -> None:
        """Close the connection at once, in any state."""
        self.leave()
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Let no request follow the one that is answered; without one, close the connection."""
        self.is_ending = True
        if self._running is None and self._tunnel is None:
            self.drop()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Reading.

    def _begin(self, data: bytes) -> None:
        """Find out by its first bytes which protocol a connection speaks."""
        self._first += data
        is_named = self.is_proxied or not self._serving.is_proxy(self.host)
        if not is_named and not self._read_proxy_header():
            return
        if _PREFACE.startswith(self._first[: len(_PREFACE)]):
            if len(self._first) >= _CERTAIN:
                self._tunnel = self._serving.pass_on(self, self._first)
            self._wait()
            return
        first, self._first = self._first, b""
        self._parser = RequestParser(self, self._serving.max_header_bytes)
        self._parse(memoryview(first))
        self._go_on()

    def _read_proxy_header(self) -> bool:
        """Take over the address of the client; False if there is none yet, or ever."""
        found = read_header(self._first)
        if found is None:  # not complete
            self._wait()
            return False
        if isinstance(found, Broken):
            self.drop()
            return False
        self._first = self._first[found.size :]
        self._serving.connections.discard(self)
        self.is_proxied = True
        if found.client is not None:
            self.host = found.client[0]
            self.client = found.client
        self.scheme = "https" if found.is_over_tls else "http"
        if not self._serving.connections.add(self):
            self.drop()
            return False
        return bool(self._first)

    def _parse(self, data: memoryview) -> None:
        """Parse what was received, until some requests wait; the rest is kept as it is.

        A request that is parsed takes a hundred times the memory of the shortest one.
        """
        assert self._parser is not None  # noqa: S101 - `_begin` made it
        for start in range(0, len(data), _PARSED_BYTES):
            if len(self._arrived) >= _ARRIVED:
                self._rest = bytes(data[start:])
                return
            if self._is_last and self._receiving is None:
                self._discard(len(data) - start)
                return
            try:
                self._parser.parse(data[start : start + _PARSED_BYTES])
            except ClarionError as error:
                self._refuse(error)

    def _parse_rest(self) -> None:
        """Continue to parse when no parsed request waits."""
        if self._rest and not self._arrived:
            rest, self._rest = self._rest, b""
            self._parse(memoryview(rest))

    def _refuse(self, error: ClarionError) -> None:
        """Read no more; answer what could not be parsed, after all that came before it."""
        was_last, self._is_last = self._is_last, True
        if self._receiving is not None:
            self._receiving.break_off()
            self._receiving = None
        elif not was_last:
            self._refusal = error

    # Of the parser.

    def begin_request(self, head: RequestParser) -> None:
        exchange = Exchange(
            self,
            self._make_scope(head),
            keeps_alive=head.keeps_alive,
            awaits_continue=head.awaits_continue,
        )
        self._receiving = exchange
        self._arrived.append(exchange)
        self._discarded = 0
        self._is_last = not exchange.keeps_alive

    def take_body(self, part: bytes) -> None:
        assert self._receiving is not None  # noqa: S101 - its head was complete
        self._receiving.add(part)
        if self._receiving.is_answered:
            self._discard(len(part))

    def end_body(self) -> None:
        assert self._receiving is not None  # noqa: S101 - its head was complete
        self._receiving.end_body()
        self._receiving = None

    def _make_scope(self, head: RequestParser) -> Scope:
        raw_path, query = head.split_target()
        path = raw_path.decode("latin-1")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": head.method,
            "path": unquote(path, errors="replace") if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": head.headers,
            "connection": self,
            "is_proxied": self.is_proxied,
        }

    # Answering.

    def _go_on(self) -> None:
        """Answer the next request, or note what the connection waits for."""
        if self._running is None and self._transport is not None and not self._is_closing:
            self._parse_rest()
            if self._drained is not None:
                self._wait()
            elif self._arrived:
                self._running = self._arrived.popleft()
                self._serving.connections.work(self)
                self._serving.starts.add(self._start)
            elif self._refusal is not None:
                self._answer_refusal(self._refusal)
            elif self._is_last or not self.is_open:
                self._close()
            else:
                self._wait()
        self._parse_rest()  # it may have the body of the request that was just started
        self._pace()

    def _pace(self) -> None:
        """Read no more while the client is ahead of us."""
        running = self._running
        is_unread = running is not None and running.unread > UNREAD_BYTES
        if self._arrived or self._rest or is_unread:
            self.pause_reading()
        else:
            self.read_on()

    def _wait(self) -> None:
        """Note what the connection waits for; the time of what has begun counts on."""
        is_in_head = self._parser is not None and self._parser.is_in_head
        if self._receiving is not None or is_in_head or self._first:
            waits = Waits.RECEIVING  # also of the first request in a tunnel
        elif self.waits is Waits.SILENT:
            return  # it has sent nothing but empty lines
        else:
            waits = Waits.PROVIDER if self.is_provider else Waits.IDLE
        if self.waits is not waits:
            self._serving.connections.wait(self, waits)

    def _start(self) -> None:
        exchange = self._running
        assert exchange is not None  # noqa: S101 - it is set until `_answer` has ended
        self._serving.running.add(self)
        self._task = self._serving.loop.create_task(self._answer(exchange))

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._serving.app(exchange.scope, exchange.receive, exchange)
        except Exception:  # noqa: BLE001 - a part of the response is sent: no other can be
            get_logger().exception("response_failed")
        finally:
            self._serving.running.discard(self)
            self._running = self._task = None
            self._conclude(exchange)

    def _conclude(self, exchange: Exchange) -> None:
        if not exchange.is_answered or self.is_stalled:
            self.drop()
        elif exchange.keeps_alive:
            self._go_on()
        else:
            self._close()

    def _answer_refusal(self, error: ClarionError) -> None:
        request_id = self._serving.make_id()
        body = problems.encode(error, request_id)
        headers = [*problems.headers_of(error), (b"x-request-id", request_id.encode())]
        headers.append((b"content-length", b"%d" % len(body)))
        self.write(self.write_head(error.status, headers, []) + body)
        self._close()

    def _close(self) -> None:
        """Close after the last response. What the client still sends is read, or it loses that."""
        self._is_closing = self._is_last = self.is_ending = True
        self._arrived.clear()
        self._rest = b""
        if self._transport is None:
            return
        if not self.is_open:
            self._transport.close()
            return
        self._serving.connections.wait(self, Waits.CLOSING)
        self._transport.write_eof()
        self.read_on()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _DISCARDED_BYTES:
            self.drop()


def _read_ends(accepted: socket.socket, host: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the client and our own address, as ASGI has them."""
    try:
        port, ours = accepted.getpeername()[1], accepted.getsockname()
    except OSError:  # it has left
        return (host, "0"), ("", "0")
    return (host.partition("%")[0], str(port)), (ours[0], str(ours[1]))
