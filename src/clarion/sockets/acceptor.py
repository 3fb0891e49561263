"""Accepts connections, with TLS or without.

A server of the event loop reports a TLS connection when its handshake is done. This one counts it
from its acceptance.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from clarion.settings.types import ListenAddress
from clarion.sockets.limited_protocol import LimitedProtocol, Listening
from clarion.sockets.newcomers import group_address
from clarion.sockets.tasks import BackgroundTasks

_BACKLOG = 1024
# Connections accepted before other work runs.
_AT_A_TIME = 50
# How long accepting pauses when the process can open no more files.
_PAUSE_S = 0.5


class Acceptor:
    """Accepts connections on the sockets of one address."""

    def __init__(self, listening: Listening, tls: ssl.SSLContext | None) -> None:
        self._listening = listening
        self._tls: dict[str, Any] = {}
        if tls is not None:
            limit_s = listening.upgrade_limit_s
            limits = {"ssl_handshake_timeout": limit_s, "ssl_shutdown_timeout": limit_s}
            self._tls = {"ssl": tls, **limits}
        self._sockets: list[socket.socket] = []
        self._tasks = BackgroundTasks()

    async def open(self, address: ListenAddress, *, is_shared: bool = False) -> None:
        """Listen on an address; of a name, on all its addresses.

        If it is shared, connections are spread over all processes that listen on it.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, where in dict.fromkeys((each[0], each[4]) for each in found):
            opened = socket.create_server(
                where, family=family, backlog=_BACKLOG, reuse_port=is_shared
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
            try:
                accepted, (host, *_) = opened.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._make_room(opened, error)
                return
            if self._listening.is_full() and not self._listening.newcomers.drop_oldest():
                self._listening.log.warning("cannot_accept", message="too many connections")
                accepted.close()
                continue
            accepted.setblocking(False)  # noqa: FBT003 - the socket's own signature
            protocol = LimitedProtocol(accepted, group_address(host), self._listening)
            self._tasks.start(self._begin(accepted, protocol))

    def _make_room(self, opened: socket.socket, error: OSError) -> None:
        """Close the oldest unauthenticated connection, and accept again after a pause."""
        self._listening.log.warning("cannot_accept", message=error.strerror)
        self._listening.newcomers.drop_oldest()
        loop = asyncio.get_running_loop()
        loop.remove_reader(opened)
        loop.call_later(_PAUSE_S, self._resume, opened)

    def _resume(self, opened: socket.socket) -> None:
        if opened in self._sockets:
            asyncio.get_running_loop().add_reader(opened, self._accept, opened)

    async def _begin(self, accepted: socket.socket, protocol: LimitedProtocol) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: protocol, accepted, **self._tls)
        except OSError:  # it has left, or its handshake of TLS failed
            protocol.leave()
            accepted.close()
