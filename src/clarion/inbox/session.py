"""The protocol of one user socket, without any I/O.

Frames and news go in by method calls; what is to be done comes out as a list of effects, which the
shell in `sockets.py` carries out. The session holds no notifications: news is a flag, and what
changed is read when the socket can take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from clarion.inbox import frames
from clarion.inbox.actions import Verb
from clarion.inbox.frames import CloseCode, Dismiss, Hello, Ping, Pong, Read, Unread
from clarion.inbox.items import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.inbox.frames import Frame
    from clarion.inbox.items import Update

HELLO_TIMEOUT_S = 10
HEARTBEAT_S = 30
SILENCE_LIMIT_MS = 2 * HEARTBEAT_S * 1000
# So many acts may be under way at a time.
ACTS_LIMIT = 64


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Write a text frame."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection with this code and sentence."""

    code: CloseCode
    reason: str


@dataclass(frozen=True, slots=True)
class Authorise:
    """Find out whose token it is and tell the session by `welcome` or `end`."""

    token: str
    after: int | None


@dataclass(frozen=True, slots=True)
class Pull:
    """Read what changed and call `take`."""


@dataclass(frozen=True, slots=True)
class Act:
    """Do this with a notification and call `settle`."""

    verb: Verb
    id: str


Effect = SendFrame | Close | Authorise | Pull | Act


class Session:
    """One connection, from its first frame to its last."""

    __slots__ = (
        "_acting",
        "_ends_at",
        "_has_news",
        "_is_authorising",
        "_is_pulling",
        "heard_at",
        "is_closed",
        "is_paused",
        "is_ready",
        "pinged_at",
    )

    def __init__(self, now: int) -> None:
        self.heard_at = now
        self.pinged_at = now
        self.is_closed = False
        self.is_paused = False
        self.is_ready = False
        self._acting = 0
        self._ends_at: int | None = None
        self._has_news = False
        self._is_authorising = False
        self._is_pulling = False

    # What comes from the client.

    def present(self, token: str, after: int | None) -> list[Effect]:
        """Take a token, from the first frame or from the header of the handshake."""
        if self.is_ready or self._is_authorising:
            return self.end(CloseCode.BAD_FRAME, "there is one hello")
        self._is_authorising = True
        return [Authorise(token, after)]

    def receive(self, data: bytes, *, is_text: bool, now: int) -> list[Effect]:
        """Take a frame in."""
        self.heard_at = now
        if len(data) > frames.FRAME_LIMIT_BYTES:
            limit = frames.FRAME_LIMIT_BYTES
            return self.end(CloseCode.FRAME_TOO_LARGE, f"frames end at {limit} bytes")
        if not is_text:
            return self.end(CloseCode.BAD_FRAME, "frames are JSON text")
        try:
            frame = frames.decode.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.end(CloseCode.BAD_FRAME, "not a frame of this protocol")
        return self._take(frame)

    def _take(self, frame: Frame) -> list[Effect]:
        if not isinstance(frame, Hello) and not self.is_ready and not self._is_authorising:
            return self.end(CloseCode.BAD_FRAME, "the first frame is a hello")
        match frame:
            case Hello():
                return self.present(frame.token, frame.after)
            case Ping():
                return [SendFrame(frames.PONG)]
            case Pong():
                return []
            case Read():
                return self._act(Verb.READ, frame.id)
            case Unread():
                return self._act(Verb.UNREAD, frame.id)
            case Dismiss():
                return self._act(Verb.DISMISS, frame.id)

    def _act(self, verb: Verb, notification_id: str) -> list[Effect]:
        if not self.is_ready:
            return self.end(CloseCode.BAD_FRAME, "wait for the state")
        if self._acting >= ACTS_LIMIT:
            return self.end(CloseCode.TOO_SLOW_OR_FAST, f"{ACTS_LIMIT} acts are under way")
        self._acting += 1
        return [Act(verb, notification_id)]

    # What the shell tells.

    def welcome(self, first: Update, ends_at: int | None) -> list[Effect]:
        """Let the client in, until its token ends."""
        if self.is_closed:
            return []
        self._is_authorising = False
        self.is_ready = True
        self._ends_at = ends_at
        return [SendFrame(encode(first)), *self.wake()]

    def wake(self) -> list[Effect]:
        """Note that the inbox may have changed."""
        self._has_news = True
        return self._pull()

    def take(self, updates: Iterable[Update], *, is_all: bool) -> list[Effect]:
        """Send what was read; go on if there is more."""
        self._is_pulling = False
        self._has_news = self._has_news or not is_all
        if self.is_closed:
            return []
        return [*(SendFrame(encode(update)) for update in updates), *self._pull()]

    def settle(self, notification_id: str, refusal: str | None) -> list[Effect]:
        """Know that an act is done, or by which code it was refused."""
        self._acting -= 1
        if refusal is None or self.is_closed:
            return []
        return [SendFrame(frames.encode_refusal(notification_id, refusal))]

    def pause(self) -> None:
        """Write no more until `resume`: the socket is full."""
        self.is_paused = True

    def resume(self) -> list[Effect]:
        """Go on: the socket has taken what was written."""
        self.is_paused = False
        return self._pull()

    def tick(self, now: int) -> list[Effect]:
        """Look at the clock: ping the quiet, cut off the dead and those whose token has ended."""
        if self.is_closed:
            return []
        if self._ends_at is not None and now >= self._ends_at:
            return self.end(CloseCode.NOT_AUTHORISED, "the token has expired")
        if now - self.heard_at >= SILENCE_LIMIT_MS:
            return self.end(CloseCode.TIMED_OUT, f"silent for {2 * HEARTBEAT_S} s")
        if now - max(self.heard_at, self.pinged_at) >= HEARTBEAT_S * 1000:
            self.pinged_at = now
            return [SendFrame(frames.PING)]
        return []

    def time_out_hello(self) -> list[Effect]:
        """End a connection that did not say who it is."""
        if self.is_ready or self._is_authorising:
            return []
        return self.end(CloseCode.TIMED_OUT, f"no hello within {HELLO_TIMEOUT_S} s")

    def end(self, code: CloseCode, reason: str) -> list[Effect]:
        """End the connection."""
        if self.is_closed:
            return []
        self.is_closed = True
        return [Close(code, reason)]

    def _pull(self) -> list[Effect]:
        is_able = self.is_ready and not self.is_paused and not self.is_closed
        if not self._has_news or self._is_pulling or not is_able:
            return []
        self._has_news, self._is_pulling = False, True
        return [Pull()]
