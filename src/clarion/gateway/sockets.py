"""The WebSocket listener: a thin shell around the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

from clarion.gateway.session import HELLO_TIMEOUT_S, Close, CloseCode, Session

if TYPE_CHECKING:
    import ssl

    from clarion.settings import Address

PATH = "/v1/gateway"
# Frames beyond our own limit are still read, so that the close code can say why; beyond this one
# the connection is cut.
_READ_LIMIT_BYTES = 2 * 1024 * 1024
_HANDSHAKE_TIMEOUT_S = 10


class Sockets:
    """The open connections of this node and the listeners that take new ones."""

    def __init__(self) -> None:
        self._open: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []

    def __len__(self) -> int:
        """How many connections are open."""
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
            use_aiofastnet=False,
            backlog=1024,
        )
        self._servers.append(server)

    async def stop(self, grace_s: float) -> None:
        """Take no more connections and close the open ones, telling them to come back."""
        for server in self._servers:
            server.close()
        waiting = [connection.end_for_restart() for connection in list(self._open)]
        if waiting:
            await asyncio.wait([asyncio.ensure_future(one) for one in waiting], timeout=grace_s)
        for connection in list(self._open):
            connection.cut()

    def _route(self, request: WSUpgradeRequest) -> WSListener | None:
        return _Connection(self._open) if request.path == PATH.encode() else None


class _Connection(WSListener):
    """One socket: hands frames to its session and does what that says."""

    def __init__(self, registry: set[_Connection]) -> None:
        self._registry = registry
        self._session = Session()
        self._transport: WSTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._registry.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HELLO_TIMEOUT_S, self._time_out)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        match frame.msg_type:
            case WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code())
                transport.disconnect()
            case WSMsgType.TEXT | WSMsgType.BINARY:
                is_text = frame.msg_type == WSMsgType.TEXT and frame.fin
                self._close(self._session.receive(frame.get_payload_as_bytes(), is_text=is_text))
            case WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.CONTINUATION:
                self._close(Close(CloseCode.BAD_FRAME, "frames are sent whole"))
            case WSMsgType.PONG:
                pass  # any frame is a sign of life

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002 - picows' signature
        self._registry.discard(self)
        if self._timer:
            self._timer.cancel()

    async def end_for_restart(self) -> None:
        self._close(Close(CloseCode.RESTARTING, "the server restarts"))
        if self._transport:
            await self._transport.wait_disconnected()

    def cut(self) -> None:
        if self._transport:
            self._transport.disconnect(graceful=False)

    def _time_out(self) -> None:
        self._close(self._session.time_out())

    def _close(self, close: Close) -> None:
        if self._transport and not self._transport.is_close_frame_sent:
            # picows types the codes of the standard alone; ours are of the private range.
            code: Any = int(close.code)
            self._transport.send_close(code, close.reason.encode())
            self._transport.disconnect()
