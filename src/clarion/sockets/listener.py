"""The WebSocket servers: routes by path to the endpoints, and the heart-beat of all sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar

from picows import WSListener, WSUpgradeRequest, ws_create_server

from clarion.setting_types import Address
from clarion.sockets.shell import Endpoint, Socket

T = TypeVar("T")
# Frames beyond our own limit are still read, so that the close code can say why; beyond this one
# the connection is cut.
_READ_LIMIT_BYTES = 2 * 1024 * 1024
_HANDSHAKE_TIMEOUT_S = 10
_TICK_S = 5.0
_PACE = 1000
# How long a stop waits for clients to answer the close frame.
_CLOSE_GRACE_S = 2.0


class SocketListener:
    """Serves endpoints, each at its path, on any number of addresses."""

    def __init__(self, *endpoints: Endpoint[Any, Any]) -> None:
        self._endpoints = {endpoint.path: endpoint for endpoint in endpoints}
        self._servers: list[asyncio.Server] = []

    async def listen(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on an address."""
        server = await ws_create_server(
            self._route,
            address.host,
            address.port,
            ssl=tls,
            read_buffer_init_size=1024,
            max_frame_size=_READ_LIMIT_BYTES,
            websocket_handshake_timeout=_HANDSHAKE_TIMEOUT_S,
            enable_auto_pong=False,  # a ping is a sign of life, which the session must know of
            use_aiofastnet=False,
            backlog=1024,
        )
        self._servers.append(server)

    async def run(self) -> None:
        """Tick every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """Send the heart-beats that are due, and close connections that are past their limits."""
        for endpoint in self._endpoints.values():
            now = endpoint.clock.monotonic()
            async for socket in paced(endpoint.sockets):
                socket.tick(now)
            await endpoint.tick(now)

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, close the open ones with 1012, finish background work."""
        for server in self._servers:
            server.close()
        endings = [asyncio.ensure_future(each.end_for_restart()) for each in self._open()]
        if endings:
            await asyncio.wait(endings, timeout=min(grace_s, _CLOSE_GRACE_S))
        for socket in self._open():
            socket.cut()
        await asyncio.gather(*(each.finish(grace_s) for each in self._endpoints.values()))

    def _open(self) -> list[Socket[Any]]:
        return [socket for endpoint in self._endpoints.values() for socket in endpoint.sockets]

    def _route(self, request: WSUpgradeRequest) -> WSListener | None:
        endpoint = self._endpoints.get(request.path.partition(b"?")[0])
        return endpoint.accept() if endpoint else None


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate over many items, letting other work run after every thousand."""
    for count, item in enumerate(items, 1):
        yield item
        if count % _PACE == 0:
            await asyncio.sleep(0)
