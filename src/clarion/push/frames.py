"""The frames of the device socket, decoded and encoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from clarion.clock import to_rfc3339
from clarion.push.model import Message
from clarion.sockets.protocol import ClientFrame, Ping, Pong, Sequence

ACK_IDS_LIMIT = 1_000
# Frames of messages to topics that are kept: enough for those that are being offered.
_ENCODED_LIMIT = 128


class Hello(ClientFrame, tag="hello"):
    """Authenticates a device. `cursor` has the last sequence that it received of each topic."""

    token: str
    secret: str
    cursor: dict[str, Sequence] | None = None


class Ack(ClientFrame, tag="ack"):
    """Acknowledges messages: the device has stored them.

    `topic` and `sequence` acknowledge a message of a topic, and all of the topic sent before it.
    """

    id: str | None = None
    ids: Annotated[list[str], msgspec.Meta(max_length=ACK_IDS_LIMIT)] | None = None
    topic: str | None = None
    sequence: Sequence | None = None

    def __post_init__(self) -> None:
        if (self.topic is None) != (self.sequence is None):
            raise ValueError("`topic` and `sequence` go together")

    def all_ids(self) -> list[str]:
        return [*([self.id] if self.id is not None else []), *(self.ids or [])]


class State(ClientFrame, tag="state"):
    """What the device is doing; a field that is left out keeps its value."""

    foreground: bool | None = None
    enabled: bool | None = None


Frame = Hello | Ack | State | Ping | Pong
decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_encode = msgspec.json.Encoder().encode


class _Ready(msgspec.Struct, tag_field="type", tag="ready"):
    device_id: str
    heartbeat_s: int
    pending: int


def encode_ready(device_id: str, heartbeat_s: int, pending: int) -> bytes:
    """Return the frame that answers a hello."""
    return _encode(_Ready(device_id, heartbeat_s, pending))


# By id: the last messages to topics, and their frames. Shared by all sessions, which get the same
# messages one after the other.
_encoded: dict[str, tuple[Message, bytes]] = {}


def encode_once(message: Message) -> bytes:
    """Return the frame of a message; one to a topic is encoded once for all subscribers."""
    if message.topic is None:
        return encode_message(message)
    known = _encoded.get(message.id)
    if known is not None and known[0] is message:
        return known[1]
    frame = encode_message(message)
    if len(_encoded) >= _ENCODED_LIMIT:
        del _encoded[next(iter(_encoded))]
    _encoded[message.id] = message, frame
    return frame


def encode_message(message: Message) -> bytes:
    """Return the frame of a message; its payload is sent unchanged."""
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
        if message.sequence:
            parts.append(b',"sequence":%d' % message.sequence)
    parts.append(b',"sent_at":"%s"}' % to_rfc3339(message.created_at).encode())
    return b"".join(parts)
