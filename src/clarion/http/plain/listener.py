"""Listens on the address without TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from clarion.clock import Clock
from clarion.http.connections import STOPPING_S
from clarion.http.plain.connection import Connection, Serving
from clarion.http.plain.limits import OpenConnections
from clarion.http.plain.parser import READ_BYTES
from clarion.http.plain.starts import Starts
from clarion.http.plain.tunnel import Tunnels
from clarion.http.plain.wire import HeadWriter
from clarion.settings.types import ListenAddress
from clarion.sockets.acceptor import Acceptor
from clarion.system.descriptors import FEW_WAITING

_BACKLOG = 1_024
# How often a stop looks whether all requests are answered.
_LOOK_EVERY_S = 0.02


class PlainListener:
    """Serves HTTP/1.1 on one address, and passes HTTP/2 on. The `Connections` of its acceptor."""

    def __init__(
        self,
        app: Any,
        address: ListenAddress,
        connections: OpenConnections,
        *,
        clock: Clock,
        tunnels: Tunnels,
        max_header_bytes: int,
        is_proxy: Callable[[str], bool] = lambda _: False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._address = address
        self._connections = connections
        self._tunnels = tunnels
        self._acceptor = Acceptor(self)
        self._is_stopping = False
        self._serving = Serving(
            loop=loop,
            app=app,
            connections=connections,
            starts=Starts(loop),
            heads=HeadWriter(clock.now),
            max_header_bytes=max_header_bytes,
            buffer=memoryview(bytearray(READ_BYTES)),
            pass_on=tunnels.open,
            is_proxy=is_proxy,
            make_id=clock.new_id,
        )

    async def start(self, *, is_shared: bool = False) -> None:
        """Listen, alone or with other processes."""
        backlog = FEW_WAITING if self._connections.limit < _BACKLOG else _BACKLOG
        await self._acceptor.open(self._address, is_shared=is_shared, backlog=backlog)

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests and wait for running ones, at most `grace_s`."""
        self._acceptor.close()
        # What has arrived by now is read first.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._connections.end()
        await asyncio.gather(self._tunnels.stop(grace_s), self._wait_ended(grace_s))
        self._connections.drop_all()
        for connection in [*self._serving.running]:
            connection.cancel()

    async def _wait_ended(self, grace_s: float) -> None:
        time = self._serving.loop.time
        began = time()
        while self._connections and time() - began < grace_s:
            await asyncio.sleep(_LOOK_EVERY_S)
            # By then a client has read that no request may follow.
            if time() - began > STOPPING_S:
                self._connections.drop_waiting()

    # Of the acceptor.

    def wait_s(self) -> float:
        return self._connections.make_room()

    def admit(self, accepted: socket.socket, host: str) -> Connection | None:
        connection = Connection(self._serving, accepted, host)
        if self._connections.add(connection):
            return connection
        connection.leave()
        return None

    def run_out(self, error: OSError) -> None:
        self._connections.log.warning("cannot_accept", message=error.strerror)
        self._connections.drop_spare()
