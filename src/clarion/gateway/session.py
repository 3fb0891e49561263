"""The protocol of one device connection, without any I/O: frames in, frames and closes out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import msgspec

FRAME_LIMIT_BYTES = 65_536
HELLO_TIMEOUT_S = 10.0


class CloseCode(IntEnum):
    """Why a connection ended; the numbers are part of the API."""

    BAD_FRAME = 4400
    NOT_AUTHORISED = 4401
    TIMED_OUT = 4408
    REPLACED = 4409
    REVOKED = 4410
    FRAME_TOO_LARGE = 4413
    TOO_SLOW_OR_FAST = 4429
    RESTARTING = 1012


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection with this code and sentence."""

    code: CloseCode
    reason: str


class Hello(msgspec.Struct, tag_field="type", tag="hello", forbid_unknown_fields=True):
    """A device says who it is."""

    token: str
    secret: str
    cursor: dict[str, int] | None = None


_decode = msgspec.json.Decoder(Hello).decode


class Session:
    """One connection, from its first frame on."""

    def receive(self, frame: bytes, *, is_text: bool) -> Close:
        """Take a frame in. No device is registered on this node yet, so none is let in."""
        if len(frame) > FRAME_LIMIT_BYTES:
            return Close(CloseCode.FRAME_TOO_LARGE, f"frames end at {FRAME_LIMIT_BYTES} bytes")
        if not is_text:
            return Close(CloseCode.BAD_FRAME, "frames are JSON text")
        try:
            _decode(frame)
        except (msgspec.DecodeError, RecursionError):
            return Close(CloseCode.BAD_FRAME, "the first frame is a hello")
        return Close(CloseCode.NOT_AUTHORISED, "no such device, or another secret")

    def time_out(self) -> Close:
        """Say why a connection without a hello ends."""
        return Close(CloseCode.TIMED_OUT, f"no hello within {HELLO_TIMEOUT_S:.0f} s")
