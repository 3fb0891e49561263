"""What all socket sessions have in common, without any I/O: frames, close codes, heart-beat."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Any, Generic, TypeVar

import msgspec

F = TypeVar("F")
E = TypeVar("E")

HELLO_TIMEOUT_S = 10
HEARTBEAT_S = 30
SILENCE_LIMIT_MS = 2 * HEARTBEAT_S * 1000
FRAME_LIMIT_BYTES = 65_536
# For clients that have not authenticated: a hello has a token, a secret, and perhaps cursors.
HELLO_LIMIT_BYTES = 16_384
USER_IS_INACTIVE = "the user is inactive or erased"
APP_IS_DELETED = "the app was deleted"
PING = b'{"type":"ping"}'
PONG = b'{"type":"pong"}'
_FINAL_TEXT, _SHORTEST = 0x81, 125
_SHORT_HEADER, _LONG_HEADER = struct.Struct(">BBH"), struct.Struct(">BBQ")
# A client may send a number of any size; this is the largest that the database takes.
Sequence = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class CloseCode(IntEnum):
    """Why a connection was closed; the numbers are part of the API."""

    RESTARTING = 1012
    BAD_FRAME = 4400
    NOT_AUTHORISED = 4401
    TIMED_OUT = 4408
    REPLACED = 4409
    REVOKED = 4410
    FRAME_TOO_LARGE = 4413
    TOO_SLOW_OR_FAST = 4429


class ClientFrame(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    """A frame from a client; the tag is its `type`."""


class Ping(ClientFrame, tag="ping"):
    """Asks for a pong."""


class Pong(ClientFrame, tag="pong"):
    """Answers a ping."""


# Structs, because every frame makes some: creating a frozen dataclass takes longer.
class SendFrame(msgspec.Struct, frozen=True, gc=False):
    """Write a text frame."""

    data: bytes


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close the connection with this code and reason."""

    code: CloseCode
    reason: str


Effects = list[SendFrame | Close | E]


class SharedFrames(list[Any]):
    """Frames that many connections get unchanged: their bytes are made once."""

    __slots__ = ("wire",)

    def __init__(self, payloads: Iterable[bytes]) -> None:
        super().__init__(map(SendFrame, payloads))
        self.wire = to_wire(self)


def to_wire(frames: Iterable[SendFrame]) -> bytes:
    """Return the bytes of text frames, as a server sends them."""
    return b"".join([part for each in frames for part in (_header(len(each.data)), each.data)])


def _header(size: int) -> bytes:
    """Return the header of a complete text frame, not masked (RFC 6455, 5.2)."""
    if size <= _SHORTEST:
        return bytes((_FINAL_TEXT, size))
    if size < 1 << 16:
        return _SHORT_HEADER.pack(_FINAL_TEXT, 126, size)
    return _LONG_HEADER.pack(_FINAL_TEXT, 127, size)


class Session(ABC, Generic[F, E]):
    """The protocol of one connection.

    It takes frames of type `F` and returns a list of effects. The shell carries out `SendFrame` and
    `Close` itself, and passes those of type `E` to the endpoint.

    `now` is always a reading of the monotonic clock.
    """

    __slots__ = (
        "_has_hello",
        "closed_with",
        "is_closed",
        "is_paused",
        "is_ready",
        "pinged_at",
        "received_at",
    )

    _decoder: msgspec.json.Decoder[F]

    def __init__(self, now: int) -> None:
        self.received_at = now
        self.pinged_at = now
        self.is_closed = False
        # Why we closed it; None while it is open, and if the client or the network ended it.
        self.closed_with: CloseCode | None = None
        # The socket has taken no data for a while: nothing is written until `resume`.
        self.is_paused = False
        self.is_ready = False
        self._has_hello = False

    def receive(self, data: bytes, *, is_text: bool, now: int) -> Effects[E]:
        self.received_at = now
        if len(data) > HELLO_LIMIT_BYTES and len(data) > self.frame_limit:
            limit = f"a frame has at most {self.frame_limit} bytes"
            return self.end(CloseCode.FRAME_TOO_LARGE, limit)
        if not is_text:
            return self.end(CloseCode.BAD_FRAME, "frames must be JSON text")
        try:
            frame = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.end(CloseCode.BAD_FRAME, "not a frame of this protocol")
        return self._take(frame, now)

    @abstractmethod
    def _take(self, frame: F, now: int) -> Effects[E]:
        """Handle a decoded frame."""

    @property
    def frame_limit(self) -> int:
        """The largest frame of the client, in bytes."""
        return FRAME_LIMIT_BYTES if self.is_ready else HELLO_LIMIT_BYTES

    def time_out_hello(self) -> Effects[E]:
        """Close a connection that has not sent its hello, or could not be answered in time."""
        if self.is_ready:
            return []
        if self._has_hello:
            return self.end(CloseCode.RESTARTING, "the database does not answer")
        return self.end(CloseCode.TIMED_OUT, f"no hello within {HELLO_TIMEOUT_S} s")

    def tick(self, now: int) -> Effects[E]:
        """Ping a quiet client, and close the connection of a silent one."""
        if self.is_closed:
            return []
        if self._is_silent(now):
            return self.end(CloseCode.TIMED_OUT, f"nothing received for {2 * HEARTBEAT_S} s")
        if now - max(self.received_at, self.pinged_at) >= HEARTBEAT_S * 1000:
            self.pinged_at = now
            return [SendFrame(PING)]
        return []

    def _pong(self) -> Effects[E]:
        """Answer a ping, unless the client does not read: pongs would pile up."""
        return [] if self.is_paused else [SendFrame(PONG)]

    def _is_silent(self, now: int) -> bool:
        return now - self.received_at >= SILENCE_LIMIT_MS

    def drain(self) -> None:
        """Start nothing new; the connection is closed when running work is done."""

    @property
    def is_drained(self) -> bool:
        """Whether the client would get nothing again if it reconnected."""
        return True

    @abstractmethod
    def resume(self, now: int) -> Effects[E]:
        """Continue after the socket has accepted the written data."""

    def end(self, code: CloseCode, reason: str) -> Effects[E]:
        """Close the connection; nothing is sent on it after that."""
        if self.is_closed:
            return []
        self.is_closed = True
        self.closed_with = code
        return [Close(code, reason)]
