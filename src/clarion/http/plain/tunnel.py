"""HTTP/2 without TLS: its connections are passed on to a Granian that listens for them alone.

It listens on a port of the loopback interface, from the first such connection on. A request counts
for the connection that was passed on: its client, its limits, its states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from clarion.http.asgi import Receive, Scope, Send
from clarion.http.listeners import HttpListener
from clarion.sockets.tasks import BackgroundTasks
from clarion.telemetry.limited_log import LimitedLog

# Passed on and not read yet; then no more is read from the other side.
_UNREAD_BYTES = 262_144
_HOST = "127.0.0.1"


class Client(Protocol):
    """A connection whose bytes are passed on."""

    client: tuple[str, str]
    server: tuple[str, str]
    scheme: str
    is_proxied: bool

    def write(self, data: bytes) -> None:
        """Write to the client."""

    def pause_reading(self) -> None:
        """Read no more from the client."""

    def read_on(self) -> None:
        """Continue to read from the client."""

    def begin_stream(self) -> None:
        """Count a request that runs."""

    def end_stream(self) -> None:
        """Count one less."""

    def finish(self) -> None:
        """Close when all is written."""


class Tunnel(asyncio.Protocol):
    """Passes bytes on between a client and Granian."""

    def __init__(self, client: Client, first: bytes) -> None:
        self.client = client
        self._first = [first]
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self.on_lost: Callable[[], object] | None = None

    # Of the event loop, for the connection to Granian.

    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        self._transport = transport
        if self._is_over:
            transport.abort()

    def begin(self) -> None:
        """Pass on what has come so far, once it is known whose connection this is."""
        if self._transport is not None:
            self._transport.writelines(self._first)
            self._first.clear()

    def data_received(self, data: bytes) -> None:
        self.client.write(data)

    def pause_writing(self) -> None:
        self.client.pause_reading()

    def resume_writing(self) -> None:
        self.client.read_on()

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        if self.on_lost is not None:
            self.on_lost()
        if not self._is_over:
            self._is_over = True
            self.client.finish()

    # Of the client.

    def pass_on(self, data: bytes) -> None:
        if self._first or self._transport is None:
            self._first.append(data)
        else:
            self._transport.write(data)

    def pause(self) -> None:
        """Read no more from Granian: the client does not read."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """End both sides: the client has left."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()


class Tunnels:
    """The connections that are passed on. The ASGI application of the Granian behind them."""

    def __init__(
        self,
        app: Any,
        listen: Callable[[Any], HttpListener],
        log: LimitedLog,
    ) -> None:
        self._app = app
        self._listen = listen
        self._log = log
        self._listener: asyncio.Task[HttpListener] | None = None
        self._by_port: dict[str, Tunnel] = {}
        self._tasks = BackgroundTasks()

    def open(self, client: Client, first: bytes) -> Tunnel:
        """Pass a connection on that begins with some bytes."""
        tunnel = Tunnel(client, first)
        self._tasks.start(self._connect(tunnel))
        return tunnel

    async def stop(self, grace_s: float) -> None:
        """Stop the listener, if it was started; one that could not be must not end a stop."""
        if (starting := self._listener) is None:
            return
        await asyncio.wait([starting], timeout=grace_s)
        if starting.done() and not starting.exception():
            await starting.result().stop(grace_s)

    async def _connect(self, tunnel: Tunnel) -> None:
        loop = asyncio.get_running_loop()
        try:
            listener = await self._start()
            transport, _ = await loop.create_connection(lambda: tunnel, _HOST, listener.port)
        except Exception as error:  # noqa: BLE001 - the next connection tries again
            self._begin_anew(str(error) or "the listener for HTTP/2 does not answer")
            tunnel.close()
            tunnel.client.finish()
            return
        if transport.is_closing():  # its client has left meanwhile
            return
        port = str(transport.get_extra_info("sockname")[1])
        self._by_port[port] = tunnel
        tunnel.on_lost = lambda: self._by_port.pop(port, None)
        tunnel.begin()

    async def _start(self) -> HttpListener:
        if self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._start_listener())
        return await asyncio.shield(self._listener)

    async def _start_listener(self) -> HttpListener:
        listener = self._listen(self)
        await listener.start(self._begin_anew)
        return listener

    def _begin_anew(self, message: str) -> None:
        """Start another listener for the next connection: this one has ended."""
        self._log.warning("cannot_accept", message=message)
        self._listener = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a connection that was passed on; nobody else may connect."""
        tunnel = self._by_port.get(scope["client"][1])
        if tunnel is None:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        client = tunnel.client
        scope["client"], scope["server"], scope["scheme"] = (
            client.client,
            client.server,
            client.scheme,
        )
        scope["connection"], scope["is_proxied"] = client, client.is_proxied
        client.begin_stream()
        try:
            await self._app(scope, receive, send)
        finally:
            client.end_stream()
