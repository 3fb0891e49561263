"""The frames of the device socket, read and written."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from clarion.clock import to_rfc3339

if TYPE_CHECKING:
    from clarion.push.model import Message

FRAME_LIMIT_BYTES = 65_536
ACK_IDS_LIMIT = 1_000
# What the store takes for a sequence; a number of a device may be of any size.
Sequence = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class CloseCode(IntEnum):
    """Why a connection ended; the numbers are part of the API."""

    RESTARTING = 1012
    BAD_FRAME = 4400
    NOT_AUTHORISED = 4401
    TIMED_OUT = 4408
    REPLACED = 4409
    REVOKED = 4410
    FRAME_TOO_LARGE = 4413
    TOO_SLOW_OR_FAST = 4429


class _Frame(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    pass


class Hello(_Frame, tag="hello"):
    """A device says who it is. `cursor` names topics and how far they are known."""

    token: str
    secret: str
    cursor: dict[str, Sequence] | None = None


class Ack(_Frame, tag="ack"):
    """A device has these messages for good."""

    id: str | None = None
    ids: Annotated[list[str], msgspec.Meta(max_length=ACK_IDS_LIMIT)] | None = None

    def all_ids(self) -> list[str]:
        """Return what is acknowledged."""
        return [*([self.id] if self.id is not None else []), *(self.ids or [])]


class State(_Frame, tag="state"):
    """What the device is doing; what is left out stays as it was."""

    foreground: bool | None = None
    enabled: bool | None = None


class Ping(_Frame, tag="ping"):
    """Asks for a pong."""


class Pong(_Frame, tag="pong"):
    """Answers a ping."""


PING = b'{"type":"ping"}'
PONG = b'{"type":"pong"}'
Frame = Hello | Ack | State | Ping | Pong
decode: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_encode = msgspec.json.Encoder().encode


class _Ready(msgspec.Struct, tag_field="type", tag="ready"):
    device_id: str
    heartbeat_s: int
    pending: int


def encode_ready(device_id: str, heartbeat_s: int, pending: int) -> bytes:
    """Return the frame that answers a hello."""
    return _encode(_Ready(device_id, heartbeat_s, pending))


def encode_message(message: Message) -> bytes:
    """Return the frame of a message; its payload goes out as the provider sent it."""
    parts = [
        b'{"type":"notification","id":',
        _encode(message.id),
        b',"payload":',
        message.payload,
        b',"priority":%d' % message.priority,
    ]
    if message.collapse_id is not None:
        parts += (b',"collapse_id":', _encode(message.collapse_id))
    if message.topic is not None:
        parts += (b',"topic":', _encode(message.topic))
    parts.append(b',"sent_at":"%s"}' % to_rfc3339(message.created_at).encode())
    return b"".join(parts)
