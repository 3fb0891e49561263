"""The endpoint of devices: carries out the requests of their sessions."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from picows import WSUpgradeRequest

from clarion.access.model import explain_origin
from clarion.access.port import Origins
from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.pacing import Pace
from clarion.push.connections import Connections, TopicCursor
from clarion.push.device_circuits import Ending
from clarion.push.dispatch import Dispatch
from clarion.push.frames import Hello
from clarion.push.model import Device
from clarion.push.registry import Registry
from clarion.push.session import (
    Acknowledged,
    Authorise,
    ClockOffset,
    DeviceRequest,
    DeviceSession,
    Dropped,
    Refill,
)
from clarion.sockets.protocol import CloseCode
from clarion.sockets.shell import Socket
from clarion.telemetry.limited_log import LimitedLog


class DeviceSocket(Socket[DeviceRequest]):
    """The `Connection` port: the socket of one device, and its cursors in topics.

    `origin` is that of the page that opened it, None if it is no browser. `admitted_at` is when the
    device authenticated; None before, and after its first acknowledgement or the end.
    """

    __slots__ = ("admitted_at", "origin", "topics")

    session: DeviceSession

    def __init__(self, endpoint: DeviceEndpoint) -> None:
        now = endpoint.clock.monotonic()
        super().__init__(endpoint, DeviceSession(now, endpoint.clock_offset))
        self.topics: dict[str, TopicCursor] | None = None
        self.origin: str | None = None
        self.admitted_at: int | None = None


class DeviceEndpoint:
    """Serves devices at `/v1/gateway`."""

    path = b"/v1/gateway"
    frames_limit = 20_000

    def __init__(
        self,
        *,
        registry: Registry,
        dispatch: Dispatch,
        connections: Connections,
        clock: Clock,
        window_s: int,
        app_limit: int = 100_000,
        deleted_apps: Container[str] = (),
        origins: Origins | None = None,
    ) -> None:
        self.clock = clock
        self.clock_offset = ClockOffset(clock)
        self.sockets: dict[Socket[Any], None] = {}
        self._registry = registry
        self._dispatch = dispatch
        self._connections = connections
        self._app_limit = app_limit
        self._deleted_apps = deleted_apps
        self._origins = origins
        self._circuits = dispatch.circuits
        self._log = LimitedLog(clock)
        self._pace = Pace()
        self._window_ms = window_s * 1000
        self._window = clock.monotonic() // self._window_ms

    def accept(self) -> DeviceSocket:
        return DeviceSocket(self)

    def connected(self, socket: DeviceSocket, request: WSUpgradeRequest) -> None:
        """Wait for the hello."""
        socket.origin = request.headers.get("origin")

    def perform(self, socket: DeviceSocket, effect: DeviceRequest) -> None:
        match effect:
            case Acknowledged(messages):
                if socket.admitted_at is not None:
                    self._note_success(socket)
                self._dispatch.acknowledgements.add(socket, messages)
            case Refill(least):
                self._dispatch.refill(socket, least)
            case Dropped(messages):
                self._dispatch.acknowledgements.skip(socket, messages)
            case Authorise(hello):
                self._dispatch.tasks.start(self._authorise(socket, hello))

    def disconnected(self, socket: DeviceSocket) -> None:
        self._note_end(socket)
        self._dispatch.disconnect(socket)

    def _note_success(self, socket: DeviceSocket) -> None:
        """Reset the failures of the device: this connection works."""
        socket.admitted_at = None
        if (device := socket.session.device) is not None:
            self._circuits.acknowledge(device.id)

    def _note_end(self, socket: DeviceSocket) -> None:
        """Report to the circuit breaker of the device how its connection ended."""
        session, admitted_at, now = socket.session, socket.admitted_at, self.clock.monotonic()
        device, socket.admitted_at = session.device, None
        if device is None or admitted_at is None:
            return
        ending = Ending(session.closed_with, now - admitted_at, not session.is_drained)
        if for_ms := self._circuits.end(device.id, ending, now):
            self._log.warning(
                "device_circuit_open",
                app_id=device.app_id,
                device_id=device.id,
                code=ending.code,
                for_s=round(for_ms / 1000),
            )

    async def tick(self, now: int) -> None:
        """Open the window for low priorities, once a period, and announce deferred messages."""
        self.clock_offset.read()
        self._circuits.forget_old(now)
        for device_id in self._circuits.take_put_off(now):
            self._dispatch.forwarding.announce_waiting(device_id)
        window = now // self._window_ms
        if window == self._window:
            return
        self._window = window
        async for connection in self._pace.over(self._connections):
            if connection.session.is_ready:
                connection.carry_out(connection.session.open_window())

    async def finish(self, grace_s: float) -> None:
        await self._dispatch.tasks.finish(grace_s)

    async def _authorise(self, socket: DeviceSocket, hello: Hello) -> None:
        try:
            device = await self._registry.authorise(hello.token, hello.secret)
            changes = self._registry.changes.count
            if device is None or device.app_id in self._deleted_apps:
                socket.carry_out(socket.session.refuse())
            elif not await self._allows(device.app_id, socket.origin):
                socket.end(CloseCode.NOT_AUTHORISED, explain_origin(socket.origin or ""))
            elif self._registry.changes.has(device.id, changes):
                # The change came when there was no connection to end.
                socket.end(CloseCode.RESTARTING, "the device was changed: reconnect")
            elif self._is_full(device):
                socket.end(CloseCode.TOO_SLOW_OR_FAST, "the app has too many devices connected")
            elif wait_ms := self._circuits.find_wait_ms(device.id, self.clock.monotonic()):
                socket.end(CloseCode.TOO_SLOW_OR_FAST, explain_wait(wait_ms))
            elif not socket.session.is_closed:
                socket.mark_authenticated()
                socket.admitted_at = self.clock.monotonic()
                await self._dispatch.connect(socket, device, hello.cursor)
        except ServiceError:
            socket.end(CloseCode.RESTARTING, "the database does not answer")

    async def _allows(self, app_id: str, origin: str | None) -> bool:
        if origin is None or self._origins is None:
            return True
        return await self._origins.is_allowed(app_id, origin)

    def _is_full(self, device: Device) -> bool:
        """Whether the app is at its limit of connections; one that is replaced does not count."""
        is_new = self._connections.get(device.id) is None
        return is_new and self._connections.count(device.app_id) >= self._app_limit


def explain_wait(wait_ms: int) -> str:
    """Return the reason with which a device is refused for a time."""
    return f"its connections failed too often: reconnect in {-(-wait_ms // 1000)} s"
