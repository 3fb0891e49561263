"""The frames of the user socket, read and written. Updates go out as `items.Update` has them."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

FRAME_LIMIT_BYTES = 65_536
Sequence = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"\A[!-~]+\Z")]


class CloseCode(IntEnum):
    """Why a socket ended: the numbers of the device socket, as far as they apply here."""

    RESTARTING = 1012
    BAD_FRAME = 4400
    NOT_AUTHORISED = 4401
    TIMED_OUT = 4408
    FRAME_TOO_LARGE = 4413
    TOO_SLOW_OR_FAST = 4429


class _Frame(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    pass


class Hello(_Frame, tag="hello"):
    """A user's client says who it is, and behind which change it resumes."""

    token: str
    after: Sequence | None = None


class Read(_Frame, tag="read"):
    """Mark one read."""

    id: Id


class Unread(_Frame, tag="unread"):
    """Mark one unread."""

    id: Id


class Dismiss(_Frame, tag="dismiss"):
    """Take one out of the list."""

    id: Id


class Ping(_Frame, tag="ping"):
    """Asks for a pong."""


class Pong(_Frame, tag="pong"):
    """Answers a ping."""


PING = b'{"type":"ping"}'
PONG = b'{"type":"pong"}'
Frame = Hello | Read | Unread | Dismiss | Ping | Pong
decode: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


class _Refusal(msgspec.Struct, tag_field="type", tag="error"):
    id: str
    code: str


def encode_refusal(notification_id: str, code: str) -> bytes:
    """Return the frame that says that an act was not done, with a code of the API's errors."""
    return msgspec.json.encode(_Refusal(notification_id, code))
