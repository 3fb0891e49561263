"""The WebSocket servers: routes by path to the endpoints, and the heart-beat of all sockets."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Collection
from typing import Any

from picows import WSListener, WSUpgradeRequest

from clarion.pacing import Pace
from clarion.settings.types import ListenAddress
from clarion.sockets.acceptor import Acceptor
from clarion.sockets.limited_protocol import Listening, PicowsLog
from clarion.sockets.newcomers import UNAUTHENTICATED_LIMIT, Newcomers
from clarion.sockets.shell import Socket, SocketEndpoint
from clarion.telemetry.limited_log import LimitedLog

# From the beginning of a connection, over TLS or not, to its upgrade to WebSocket.
UPGRADE_LIMIT_S = 10.0
_TICK_S = 5.0
# How long a stop waits for a client to acknowledge what was sent, and how often it checks.
_SETTLE_S = 2.0
_LOOK_EVERY_S = 0.02
# How long a stop waits for clients to answer the close frame.
_CLOSE_GRACE_S = 2.0
# Sockets that a stopping node closes in a second, unless half of its grace period is too short.
_DRAINED_PER_S = 200
_DRAINING_SHARE = 0.5


class SocketListener:
    """Serves endpoints, each at its path, on any number of addresses."""

    def __init__(
        self,
        *endpoints: SocketEndpoint[Any, Any],
        per_address: int = UNAUTHENTICATED_LIMIT,
        total: int | None = None,
        upgrade_limit_s: float = UPGRADE_LIMIT_S,
    ) -> None:
        self._endpoints = {endpoint.path: endpoint for endpoint in endpoints}
        self._total = total
        self.newcomers = Newcomers(per_address)
        log = LimitedLog(endpoints[0].clock)
        self._listening = Listening(
            self._route, self.newcomers, log, PicowsLog(log), upgrade_limit_s, self._is_full
        )
        self._acceptors: list[Acceptor] = []
        self._pace = Pace()

    @property
    def descriptors(self) -> Collection[int]:
        """The descriptors of the connections; one that has just ended may still be included."""
        return self._listening.descriptors

    @property
    def paths(self) -> set[bytes]:
        """The paths that are served."""
        return set(self._endpoints)

    async def listen(
        self, address: ListenAddress, tls: ssl.SSLContext | None = None, *, is_shared: bool = False
    ) -> None:
        """Accept connections on an address, alone or with other processes."""
        acceptor = Acceptor(self._listening, tls, self._listening.upgrade_limit_s)
        await acceptor.open(address, is_shared=is_shared)
        self._acceptors.append(acceptor)

    async def run(self) -> None:
        """Tick every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """Send the heart-beats that are due, and close connections that are past their limits."""
        for endpoint in self._endpoints.values():
            now = endpoint.clock.monotonic()
            async for socket in self._pace.over(list(endpoint.sockets)):
                socket.tick(now)
            await endpoint.tick(now)

    async def stop(self, grace_s: float, *, is_gentle: bool = False) -> None:
        """Accept no more connections, close the open ones with 1012, finish background work.

        A gentle stop closes them one by one, at random moments within half of the grace period, so
        that the clients do not all reconnect to other nodes at once.
        """
        for acceptor in self._acceptors:
            acceptor.close()
        spread_s = self._choose_spread(grace_s) if is_gentle else 0.0
        settle_s = min(grace_s / 4, _SETTLE_S)
        endings = [
            asyncio.ensure_future(_end_after(random.uniform(0, spread_s), each, settle_s))  # noqa: S311 - jitter
            for each in self._open()
        ]
        if endings:
            limit_s = min(grace_s, spread_s + settle_s + _CLOSE_GRACE_S)
            await asyncio.wait(endings, timeout=limit_s)
        for socket in self._open():
            socket.cut()
        self.newcomers.drop_all()
        await asyncio.gather(*(each.finish(grace_s) for each in self._endpoints.values()))

    def _choose_spread(self, grace_s: float) -> float:
        """Return over how long the open sockets are closed."""
        return min(grace_s * _DRAINING_SHARE, len(self._open()) / _DRAINED_PER_S)

    def _is_full(self) -> bool:
        # Sockets that have not authenticated yet are counted twice.
        open_ = len(self.newcomers) + sum(len(each.sockets) for each in self._endpoints.values())
        return self._total is not None and open_ >= self._total

    def _open(self) -> list[Socket[Any]]:
        return [socket for endpoint in self._endpoints.values() for socket in endpoint.sockets]

    def _route(self, request: WSUpgradeRequest) -> WSListener | None:
        endpoint = self._endpoints.get(request.path.partition(b"?")[0])
        return endpoint.accept() if endpoint else None


async def _end_after(delay_s: float, socket: Socket[Any], settle_s: float) -> None:
    """Close a socket after its client has acknowledged, so that nothing is sent to it twice."""
    await asyncio.sleep(delay_s)
    socket.session.drain()
    give_up = asyncio.get_running_loop().time() + settle_s
    while not socket.is_drained and asyncio.get_running_loop().time() < give_up:  # noqa: ASYNC110 - a bounded wait
        await asyncio.sleep(_LOOK_EVERY_S)
    await socket.end_for_restart()
