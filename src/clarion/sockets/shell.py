"""The I/O of one socket: passes frames to its session and carries out the effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest

from clarion.clock import Clock
from clarion.sockets.protocol import (
    HELLO_TIMEOUT_S,
    Close,
    CloseCode,
    Effects,
    SendFrame,
    Session,
    SharedFrames,
    to_wire,
)

E = TypeVar("E")
S_contra = TypeVar("S_contra", contravariant=True)
E_contra = TypeVar("E_contra", contravariant=True)

# How long a socket may not accept data.
PAUSE_LIMIT_MS = 30_000
# How long a client may take to answer a close frame; then the connection is cut.
CLOSE_LIMIT_MS = 10_000
# How long a frame may take from its first byte to its last; checked at each heart-beat.
FRAME_LIMIT_S = 15
# The longest header of a frame.
_HEADER_LIMIT_BYTES = 14
_NORMAL_CLOSURE = 1000
_PROTOCOL_ERROR = 1002
# RFC 6455, 7.4: which codes a client may send.
_CLOSE_CODES = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})
_REASON_LIMIT_BYTES = 123


class SocketEndpoint(Protocol[S_contra, E_contra]):
    """The endpoint of one path: creates its sockets and carries out their effects."""

    path: bytes
    clock: Clock
    # Those that are open, authenticated or not, the oldest first.
    sockets: dict[Socket[Any], None]
    # More frames than this between two heart-beats, and the socket is closed.
    frames_limit: int

    def accept(self) -> WSListener:
        """Return the socket for a connection whose handshake has come."""

    def connected(self, socket: S_contra, request: WSUpgradeRequest) -> None:
        """Begin: the handshake is done."""

    def perform(self, socket: S_contra, effect: E_contra) -> None:
        """Carry out an effect that the shell does not know. Must not wait."""

    def disconnected(self, socket: S_contra) -> None:
        """Release what belongs to a socket that was closed. May be called twice."""

    async def tick(self, now: int) -> None:
        """Run the work due at a heart-beat, after the ticks of the sockets."""

    async def finish(self, grace_s: float) -> None:
        """Wait for background work as long as the grace lasts, then cancel it."""


class Socket(WSListener, Generic[E]):
    """One connection. Subclasses add what their endpoint needs to know about it."""

    __slots__ = (
        "_closed_at",
        "_endpoint",
        "_frames",
        "_hello_timer",
        "_paused_at",
        "_transport",
        "_unfinished_at",
        "on_authenticated",
        "session",
        "unread",
    )

    def __init__(self, endpoint: SocketEndpoint[Any, E], session: Session[Any, E]) -> None:
        self.session = session
        self._endpoint = endpoint
        self._transport: WSTransport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._frames = 0
        self._paused_at: int | None = None
        self._closed_at: int | None = None
        self._unfinished_at: int | None = None
        # Bytes received of a frame that is not complete.
        self.unread = 0
        # Set by the connection until it is called, or the connection ends.
        self.on_authenticated: Callable[[], None] | None = None

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._endpoint.sockets[self] = None
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._time_out_hello)
        self._endpoint.connected(self, transport.request)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._frames += 1
        self.unread = frame.tail_size
        if self.session.is_closed:
            if frame.msg_type == WSMsgType.CLOSE:
                transport.disconnect()
            return
        if self._frames > self._endpoint.frames_limit:
            self.end(CloseCode.TOO_SLOW_OR_FAST, "too many frames")
        else:
            self._take(transport, frame, self._endpoint.clock.monotonic())

    def _take(self, transport: WSTransport, frame: WSFrame, now: int) -> None:
        match frame.msg_type:
            case WSMsgType.TEXT | WSMsgType.BINARY:
                is_text = frame.msg_type == WSMsgType.TEXT and frame.fin
                data = frame.get_payload_as_bytes()
                self.carry_out(self.session.receive(data, is_text=is_text, now=now))
            case WSMsgType.CLOSE:
                transport.send_close(_answer_to_close(frame))
                transport.disconnect()
                self._closed_at = now
            case WSMsgType.PING:
                self.session.received_at = now
                # For a client that does not read, pongs would pile up.
                if not self.session.is_paused:
                    transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.PONG:
                self.session.received_at = now
            case WSMsgType.CONTINUATION:
                self.end(CloseCode.BAD_FRAME, "fragmented frames are not supported")

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002 - picows' signature
        self.session.is_closed = True
        self.on_authenticated = None
        self._endpoint.sockets.pop(self, None)
        self._release()

    def pause_writing(self) -> None:
        self.session.is_paused = True
        self._paused_at = self._endpoint.clock.monotonic()

    def resume_writing(self) -> None:
        self._paused_at = None
        self.carry_out(self.session.resume(self._endpoint.clock.monotonic()))

    # Called by the endpoint and the listener.

    def carry_out(self, effects: Effects[E]) -> None:
        """Carry out effects of the session; frames in succession are written together."""
        if isinstance(effects, SharedFrames) and len(effects) > 1:
            self._write(effects.wire)
            return
        frames: list[SendFrame] = []
        for effect in effects:
            if isinstance(effect, SendFrame):
                frames.append(effect)
                continue
            self._send(frames)
            frames = []
            if isinstance(effect, Close):
                self._close(effect)
            else:
                self._endpoint.perform(self, effect)
        self._send(frames)

    def _send(self, frames: list[SendFrame]) -> None:
        if len(frames) == 1 and self._transport is not None:
            # Sent at once; frames that are written together are sent in the next turn of the loop.
            self._transport.send(WSMsgType.TEXT, frames[0].data)
        elif frames:
            self._write(to_wire(frames))

    def _write(self, wire: bytes) -> None:
        """Write whole frames with one system call. picows writes in the same order."""
        transport = self._transport
        if transport is not None and not transport.is_close_frame_sent:
            transport.underlying_transport.write(wire)

    @property
    def is_drained(self) -> bool:
        """Whether it can be closed and the client would get nothing again."""
        return self.session.is_closed or self.session.is_drained

    def mark_authenticated(self) -> None:
        """Stop waiting for a hello: a valid one has arrived."""
        self._cancel_hello_timer()
        if self.on_authenticated is not None:
            self.on_authenticated()
            self.on_authenticated = None

    @property
    def read_limit(self) -> int:
        """The largest unfinished frame, in bytes."""
        return self.session.frame_limit + _HEADER_LIMIT_BYTES

    def tick(self, now: int) -> None:
        """Check the limits, and let the session check its own."""
        if self._is_closing(now):
            self.cut()
        if self._is_unfinished(now):
            self.end(CloseCode.TIMED_OUT, f"a frame was not complete after {FRAME_LIMIT_S} s")
        self._frames = 0
        if self._paused_at is not None and now - self._paused_at > PAUSE_LIMIT_MS:
            self.end(CloseCode.TOO_SLOW_OR_FAST, "the client reads too slowly")
        self.carry_out(self.session.tick(now))

    def _is_closing(self, now: int) -> bool:
        """Whether the client has not answered a close frame in time, ours or that of picows."""
        transport = self._transport
        if self._closed_at is None and transport is not None and transport.is_close_frame_sent:
            self._closed_at = now
        return self._closed_at is not None and now - self._closed_at >= CLOSE_LIMIT_MS

    def _is_unfinished(self, now: int) -> bool:
        """Whether one frame has been coming for too long."""
        if not self.unread or self._frames:
            self._unfinished_at = None
        elif self._unfinished_at is None:
            self._unfinished_at = now
        return self._unfinished_at is not None and now - self._unfinished_at >= FRAME_LIMIT_S * 1000

    def end(self, code: CloseCode, reason: str) -> None:
        """Close the connection, unless it is closed."""
        self.carry_out(self.session.end(code, reason))

    async def end_for_restart(self) -> None:
        """Ask the client to reconnect, and wait until it has disconnected."""
        self.end(CloseCode.RESTARTING, "the server restarts")
        if self._transport is not None:
            await self._transport.wait_disconnected()

    def cut(self) -> None:
        """Drop the connection without a closing handshake."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    def _close(self, close: Close) -> None:
        self._release()
        if self._transport is None:
            return
        # picows types the codes of the standard alone; ours are of the private range.
        code: Any = int(close.code)
        self._transport.send_close(code, _cut_short(close.reason))
        # Disconnecting now could lose the code: data that the client is just sending would be
        # answered with a reset. So the client disconnects, or `tick` cuts the connection.
        self._closed_at = self._endpoint.clock.monotonic()

    def _release(self) -> None:
        self._cancel_hello_timer()
        self._endpoint.disconnected(self)

    def _time_out_hello(self) -> None:
        self.carry_out(self.session.time_out_hello())

    def _cancel_hello_timer(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None


def _answer_to_close(frame: WSFrame) -> Any:
    """Return the code that answers a close: its own, if a client may send that."""
    if not frame.payload_size:
        return _NORMAL_CLOSURE
    code: Any = frame.get_close_code()
    return code if code in _CLOSE_CODES else _PROTOCOL_ERROR


def _cut_short(reason: str) -> bytes:
    """Return as much of a reason as fits into a close frame, in whole characters."""
    return reason.encode()[:_REASON_LIMIT_BYTES].decode(errors="ignore").encode()
