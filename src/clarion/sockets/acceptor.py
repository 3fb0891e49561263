"""Accepts connections, with TLS or without.

A server of the event loop reports a TLS connection when its handshake is done. This one counts it
from its acceptance. It can also stop accepting for a moment: what waits then is in the queue of the
system, in its order.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Protocol

from clarion.settings.types import ListenAddress
from clarion.sockets.tasks import BackgroundTasks

# Connections accepted before other work runs.
_AT_A_TIME = 50
# How long accepting pauses when the process can open no more files.
_PAUSE_S = 0.5


class Connection(Protocol):
    """The protocol of a connection, which is counted from its acceptance."""

    def leave(self) -> None:
        """Stop counting the connection: it ended before it began."""


class Connections(Protocol):
    """Decides which connections are accepted, and serves them."""

    def wait_s(self) -> float:
        """Return how long to accept nobody; 0 if a connection may be accepted now."""

    def admit(self, accepted: socket.socket, host: str) -> Any:
        """Return the `Connection` that serves it, or None if it is refused and must be closed."""

    def run_out(self, error: OSError) -> None:
        """Close a connection that can be spared: the process can open no more files."""


class Acceptor:
    """Accepts connections on the sockets of one address."""

    def __init__(
        self, connections: Connections, tls: ssl.SSLContext | None = None, tls_limit_s: float = 10.0
    ) -> None:
        self._connections = connections
        self._tls: dict[str, Any] = {}
        if tls is not None:
            limits = {"ssl_handshake_timeout": tls_limit_s, "ssl_shutdown_timeout": tls_limit_s}
            self._tls = {"ssl": tls, **limits}
        self._sockets: list[socket.socket] = []
        self._tasks = BackgroundTasks()

    async def open(
        self, address: ListenAddress, *, is_shared: bool = False, backlog: int = 1024
    ) -> None:
        """Listen on an address; of a name, on all its addresses.

        If it is shared, connections are spread over all processes that listen on it.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, where in dict.fromkeys((each[0], each[4]) for each in found):
            opened = socket.create_server(
                where, family=family, backlog=backlog, reuse_port=is_shared
            )
            opened.setblocking(False)  # noqa: FBT003 - the socket's own signature
            self._sockets.append(opened)
            loop.add_reader(opened, self._accept, opened)

    def close(self) -> None:
        """Accept no more connections."""
        loop = asyncio.get_running_loop()
        for opened in self._sockets:
            loop.remove_reader(opened)
            opened.close()
        self._sockets.clear()

    def _accept(self, opened: socket.socket) -> None:
        for _ in range(_AT_A_TIME):
            if wait_s := self._connections.wait_s():
                self._pause(opened, wait_s)
                return
            try:
                accepted, (host, *_) = opened.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._connections.run_out(error)
                self._pause(opened, _PAUSE_S)
                return
            accepted.setblocking(False)  # noqa: FBT003 - the socket's own signature
            protocol = self._connections.admit(accepted, host)
            if protocol is None:
                accepted.close()
            else:
                self._tasks.start(self._begin(accepted, protocol))

    def _pause(self, opened: socket.socket, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(opened)
        loop.call_later(wait_s, self._resume, opened)

    def _resume(self, opened: socket.socket) -> None:
        if opened in self._sockets:
            asyncio.get_running_loop().add_reader(opened, self._accept, opened)

    async def _begin(self, accepted: socket.socket, protocol: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: protocol, accepted, **self._tls)
        except OSError:  # it has left, or its handshake of TLS failed
            protocol.leave()
            accepted.close()
