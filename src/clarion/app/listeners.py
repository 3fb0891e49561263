"""The listeners of a node, in the order in which they open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clarion.app.processes.member import Member
from clarion.app.services import Services
from clarion.clock import Clock
from clarion.http.certificates import load_context, read_expiry
from clarion.http.front import Front
from clarion.http.listeners import HttpListener
from clarion.http.plain.limits import OpenConnections
from clarion.http.plain.listener import PlainListener
from clarion.http.plain.tunnel import Tunnels
from clarion.http.strangers import Peers, normalise
from clarion.http.traced import TracedFront
from clarion.settings import Settings
from clarion.settings.types import ListenAddress
from clarion.telemetry.limited_log import LimitedLog

_ANY_LOOPBACK_PORT = ListenAddress("127.0.0.1", 0)


class Listeners:
    """What accepts connections, over HTTP and WebSocket."""

    def __init__(
        self,
        front: Front,
        services: Services,
        settings: Settings,
        clock: Clock,
        member: Member | None,
    ) -> None:
        self._front = front
        self._services = services
        self._settings = settings
        self._is_shared = member is not None
        self._clock = clock
        self._log = LimitedLog(clock)
        self._plain = OpenConnections(
            limit=front.connections.limit,
            address_limit=settings.address_connections,
            log=self._log,
            time=asyncio.get_running_loop().time,
        )
        self._http: list[PlainListener | HttpListener] = []
        front.connections.others = (services.sockets.descriptors, self._plain.descriptors)
        services.metrics.watch_connections(front.connections, self._plain)

    async def open(self, tls: tuple[Path, Path], on_failed: Callable[[str], None]) -> None:
        """Accept connections; `on_failed` is called if one of the listeners ends."""
        settings, (certificate, key) = self._settings, tls
        self._services.metrics.watch_certificate(read_expiry(certificate))
        await self._services.deleted_apps.poll()
        await self._open_sockets(certificate, key)
        tracer = self._services.tracer
        served = TracedFront(self._front, tracer) if tracer.is_on else self._front
        listen = partial(
            HttpListener,
            max_header_bytes=settings.max_header_bytes,
            connections=self._front.connections.limit,
            count_streams=self._services.live_clients.__len__,
        )
        if settings.tls_listen:
            over_tls = listen(served, settings.tls_listen, certificate=certificate, key=key)
            await over_tls.start(on_failed)
            self._http.append(over_tls)
        # The plain one last: when `/ready` answers there, everything is open.
        behind = partial(listen, address=_ANY_LOOPBACK_PORT)
        plain = self._make_plain(served, Tunnels(served, behind, self._log))
        await plain.start(is_shared=self._is_shared)
        self._http.append(plain)

    async def run(self) -> None:
        """Close connections that wait too long, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._front.connections.run())
            tasks.create_task(self._plain.run())

    async def stop(self, grace_s: float, *, is_gentle: bool) -> None:
        """Accept nothing more, and finish what is under way within the grace period."""
        self._front.connections.stop()
        await asyncio.gather(
            self._services.sockets.stop(grace_s, is_gentle=is_gentle),
            *(listener.stop(grace_s) for listener in self._http),
        )

    async def _open_sockets(self, certificate: Path, key: Path) -> None:
        settings, sockets = self._settings, self._services.sockets
        if "gateway" not in settings.roles:
            return
        if settings.gateway_listen:
            await sockets.listen(settings.gateway_listen, is_shared=self._is_shared)
        if settings.gateway_tls_listen:
            context = load_context(certificate, key)
            await sockets.listen(settings.gateway_tls_listen, context, is_shared=self._is_shared)

    def _make_plain(self, served: Front | TracedFront, tunnels: Tunnels) -> PlainListener:
        peers, settings = Peers.of(self._settings), self._settings
        return PlainListener(
            served,
            settings.listen,
            self._plain,
            clock=self._clock,
            tunnels=tunnels,
            max_header_bytes=settings.max_header_bytes,
            is_proxy=(lambda host: peers.is_proxy(normalise(host)))
            if settings.proxy_protocol == "on"
            else lambda _: False,
        )
