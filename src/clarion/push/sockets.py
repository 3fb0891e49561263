"""The WebSocket listener: a thin shell that carries out what the session says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

from clarion.errors import ServiceError
from clarion.push.frames import CloseCode
from clarion.push.session import (
    HELLO_TIMEOUT_S,
    Acknowledged,
    Authorise,
    Close,
    Dropped,
    Effect,
    Refill,
    SendFrame,
    Session,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from clarion.clock import Clock
    from clarion.push.connections import Connections, TopicCursor
    from clarion.push.dispatch import Dispatch
    from clarion.push.frames import Hello
    from clarion.push.registry import Registry
    from clarion.setting_types import Address

PATH = b"/v1/gateway"
# Frames beyond our own limit are still read, so that the close code can say why; beyond this one
# the connection is cut.
_READ_LIMIT_BYTES = 2 * 1024 * 1024
_HANDSHAKE_TIMEOUT_S = 10
TICK_S = 5.0
# More frames between two ticks than this, and the device is too fast.
FRAMES_LIMIT = 20_000
# How long a socket may refuse to take what we write.
PAUSE_LIMIT_MS = 30_000
# How long a device may take to hear why it is sent away and to answer that; then it is cut off.
CLOSE_LIMIT_MS = 10_000
_FAREWELL_S = 2.0
_NORMAL_CLOSURE = 1000


class Sockets:
    """The listeners for devices, and the heart-beat of the open connections."""

    def __init__(
        self,
        *,
        registry: Registry,
        dispatch: Dispatch,
        connections: Connections,
        clock: Clock,
        window_s: int,
        others: Mapping[bytes, Callable[[WSUpgradeRequest], WSListener]] | None = None,
    ) -> None:
        self.registry = registry
        self.dispatch = dispatch
        self.connections = connections
        self.clock = clock
        self._window_ms = window_s * 1000
        # What else is served here, by path: sockets that are not those of devices.
        self._others = others or {}
        self._open: set[DeviceSocket] = set()
        self._servers: list[asyncio.Server] = []
        self._heart: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many connections are open, those without a hello included."""
        return len(self._open)

    async def listen(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        """Take connections on an address."""
        server = await ws_create_server(
            self._route,
            address.host,
            address.port,
            ssl=tls,
            read_buffer_init_size=1024,
            max_frame_size=_READ_LIMIT_BYTES,
            websocket_handshake_timeout=_HANDSHAKE_TIMEOUT_S,
            enable_auto_pong=False,  # a ping is a sign of life, which the session must hear of
            use_aiofastnet=False,
            backlog=1024,
        )
        self._servers.append(server)
        if self._heart is None:
            self._heart = asyncio.get_running_loop().create_task(self._beat())

    async def stop(self, grace_s: float) -> None:
        """Take no more connections and close the open ones, telling them to come back."""
        for server in self._servers:
            server.close()
        if self._heart is not None:
            self._heart.cancel()
        waiting = [connection.end_for_restart() for connection in list(self._open)]
        if waiting:
            farewells = [asyncio.ensure_future(one) for one in waiting]
            await asyncio.wait(farewells, timeout=min(grace_s, _FAREWELL_S))
        for connection in list(self._open):
            connection.cut()
        await self.dispatch.finish(grace_s)

    def opened(self, connection: DeviceSocket) -> None:
        """Know a connection."""
        self._open.add(connection)

    def closed(self, connection: DeviceSocket) -> None:
        """Know it no more."""
        self._open.discard(connection)
        self.dispatch.disconnect(connection)

    def _route(self, request: WSUpgradeRequest) -> WSListener | None:
        path = request.path.partition(b"?")[0]
        if path == PATH:
            return DeviceSocket(self)
        other = self._others.get(path)
        return other(request) if other else None

    async def _beat(self) -> None:
        """Ping the quiet, cut off the dead, and open the window for low priorities."""
        window = self.clock.now() // self._window_ms
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.now()
            is_window, window = now // self._window_ms != window, now // self._window_ms
            for count, connection in enumerate(list(self._open)):
                connection.tick(now, opens_window=is_window)
                if count % 1000 == 999:  # noqa: PLR2004 - let the loop breathe between thousands
                    await asyncio.sleep(0)


class DeviceSocket(WSListener):
    """One socket: hands frames to its session and does what that says."""

    __slots__ = (
        "_closed_at",
        "_frames",
        "_hello_timer",
        "_paused_at",
        "_sockets",
        "_transport",
        "session",
        "topics",
    )

    def __init__(self, sockets: Sockets) -> None:
        self.session = Session(sockets.clock.now())
        self.topics: dict[str, TopicCursor] | None = None
        self._sockets = sockets
        self._transport: WSTransport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._frames = 0
        self._paused_at: int | None = None
        self._closed_at: int | None = None

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._sockets.opened(self)
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._time_out_hello)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._frames += 1
        if self.session.is_closed:
            if frame.msg_type == WSMsgType.CLOSE:
                transport.disconnect()
            return
        match frame.msg_type:
            case WSMsgType.TEXT | WSMsgType.BINARY:
                is_text = frame.msg_type == WSMsgType.TEXT and frame.fin
                data = frame.get_payload_as_bytes()
                now = self._sockets.clock.now()
                self.carry_out(self.session.receive(data, is_text=is_text, now=now))
            case WSMsgType.CLOSE:
                # A close without a code is answered with one: there is no zero on the wire.
                given: Any = frame.get_close_code()
                code: Any = given or _NORMAL_CLOSURE
                transport.send_close(code)
                transport.disconnect()
                self._closed_at = self._sockets.clock.now()
            case WSMsgType.PING:
                self.session.heard_at = self._sockets.clock.now()
                transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.CONTINUATION:
                self.carry_out(self.session.end(CloseCode.BAD_FRAME, "frames are sent whole"))
            case WSMsgType.PONG:
                self.session.heard_at = self._sockets.clock.now()

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002 - picows' signature
        self._cancel_hello_timer()
        self._sockets.closed(self)

    def pause_writing(self) -> None:
        self.session.is_paused = True
        self._paused_at = self._sockets.clock.now()

    def resume_writing(self) -> None:
        self._paused_at = None
        self.carry_out(self.session.resume(self._sockets.clock.now()))

    # What the gateway calls.

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the session says."""
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendFrame(data):
                self._send(data)
            case Acknowledged(messages):
                self._sockets.dispatch.acknowledge(self, messages)
            case Dropped(messages):
                self._sockets.dispatch.drop(self, messages)
            case Refill(least):
                self._sockets.dispatch.refill(self, least)
            case Authorise(hello):
                self._sockets.dispatch.start(self._authorise(hello))
            case Close():
                self._close(effect)

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, data)

    def tick(self, now: int, *, opens_window: bool) -> None:
        """Look at the clock."""
        if self._closed_at is not None and now - self._closed_at >= CLOSE_LIMIT_MS:
            self.cut()
        if self._frames > FRAMES_LIMIT:
            self.carry_out(self.session.end(CloseCode.TOO_SLOW_OR_FAST, "too many frames"))
        self._frames = 0
        if self._paused_at is not None and now - self._paused_at > PAUSE_LIMIT_MS:
            self.carry_out(self.session.end(CloseCode.TOO_SLOW_OR_FAST, "reads too slowly"))
        self.carry_out(self.session.tick(now))
        if opens_window and self.session.is_ready:
            self.carry_out(self.session.open_window())

    async def end_for_restart(self) -> None:
        """Tell the device to come back, and wait until it is gone."""
        self.carry_out(self.session.end(CloseCode.RESTARTING, "the server restarts"))
        if self._transport is not None:
            await self._transport.wait_disconnected()

    def cut(self) -> None:
        """End the connection without another word."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    async def _authorise(self, hello: Hello) -> None:
        try:
            device = await self._sockets.registry.authorise(hello.token, hello.secret)
            if device is None:
                self.carry_out(self.session.refuse())
            elif not self.session.is_closed:
                self._cancel_hello_timer()
                await self._sockets.dispatch.connect(self, device, hello.cursor)
        except ServiceError:
            self.carry_out(self.session.end(CloseCode.RESTARTING, "the store does not answer"))

    def _time_out_hello(self) -> None:
        self.carry_out(self.session.time_out_hello())

    def _cancel_hello_timer(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _close(self, close: Close) -> None:
        if self._transport is None:
            return
        # picows types the codes of the standard alone; ours are of the private range.
        code: Any = int(close.code)
        self._transport.send_close(code, close.reason.encode())
        # To close the socket now could lose the code: what the device is just sending would be
        # answered with a reset. So the device closes it, or `tick` does; it is away from now on.
        self._closed_at = self._sockets.clock.now()
        self._sockets.dispatch.disconnect(self)
