"""The protocol of one user socket, without any I/O.

The session holds no notifications: that something changed is a flag, and what changed is read
when the socket can take it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clarion.inbox import frames
from clarion.inbox.feed import Update, encode
from clarion.inbox.frames import Action, Frame, Hello
from clarion.inbox.model import InboxAction
from clarion.sockets.protocol import Close, CloseCode, Ping, Pong, SendFrame, Session

# Actions that may be in progress at a time.
ACTIONS_LIMIT = 64


class Authorise(msgspec.Struct, frozen=True):
    """Authenticate the user by the token or ticket; then call `welcome` or `end`."""

    token: str
    after: int | None
    is_ticket: bool = False


class Pull(msgspec.Struct, frozen=True):
    """Read what changed, then call `take`."""


class Apply(msgspec.Struct, frozen=True):
    """Apply an action to a notification, then call `settle`."""

    action: InboxAction
    id: str


UserRequest = Authorise | Pull | Apply
Effect = SendFrame | Close | UserRequest


class UserSession(Session[Frame, UserRequest]):
    """One connection of a user's client, from its first frame to its last."""

    __slots__ = ("_actions", "_expires_at", "_has_changes", "_is_pulling")

    _decoder = frames.decoder

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self._actions = 0
        self._expires_at: int | None = None
        self._has_changes = False
        self._is_pulling = False

    # From the client.

    def present(self, token: str, after: int | None, *, is_ticket: bool = False) -> list[Effect]:
        """Take a token, of the hello or of the header of the handshake, or a ticket."""
        if self._has_hello:
            return self.end(CloseCode.BAD_FRAME, "the hello was sent before")
        self._has_hello = True
        return [Authorise(token, after, is_ticket)]

    def _take(self, frame: Frame, now: int) -> list[Effect]:  # noqa: ARG002 - other sessions need it
        if isinstance(frame, Hello):
            return self.present(frame.token, frame.after)
        if not self._has_hello:
            return self.end(CloseCode.BAD_FRAME, "the first frame must be a hello")
        match frame:
            case Ping():
                return self._pong()
            case Pong():
                return []
            case Action():
                return self._apply(frame.action, frame.id)

    def _apply(self, action: InboxAction, notification_id: str) -> list[Effect]:
        if not self.is_ready:
            return self.end(CloseCode.BAD_FRAME, "wait for the state before the first action")
        if self._actions >= ACTIONS_LIMIT:
            reason = f"{ACTIONS_LIMIT} actions are in progress"
            return self.end(CloseCode.TOO_SLOW_OR_FAST, reason)
        self._actions += 1
        return [Apply(action, notification_id)]

    # From the endpoint.

    def welcome(self, first: Update, expires_at: int | None) -> list[Effect]:
        """Begin to send updates, until the token expires by the monotonic clock."""
        if self.is_closed:
            return []
        self.is_ready = True
        self._expires_at = expires_at
        return [SendFrame(encode(first)), *self.wake()]

    def wake(self) -> list[Effect]:
        """Note that the inbox may have changed."""
        self._has_changes = True
        return self._pull()

    def take(self, updates: Iterable[Update], *, is_all: bool) -> list[Effect]:
        """Send the read changes; read again if there are more."""
        self._is_pulling = False
        self._has_changes = self._has_changes or not is_all
        if self.is_closed:
            return []
        return [*(SendFrame(encode(update)) for update in updates), *self._pull()]

    def settle(self, notification_id: str, error_code: str | None) -> list[Effect]:
        """Note that an action has ended; with a code if it failed."""
        self._actions -= 1
        if error_code is None or self.is_closed:
            return []
        return [SendFrame(frames.encode_error(notification_id, error_code))]

    def resume(self, now: int) -> list[Effect]:  # noqa: ARG002 - other sessions need it
        self.is_paused = False
        return self._pull()

    def tick(self, now: int) -> list[Effect]:
        """Also close the connection when the token has expired."""
        if self._expires_at is not None and now >= self._expires_at:
            return self.end(CloseCode.NOT_AUTHORISED, "the token has expired")
        return super().tick(now)

    def _pull(self) -> list[Effect]:
        is_able = self.is_ready and not self.is_paused and not self.is_closed
        if not self._has_changes or self._is_pulling or not is_able:
            return []
        self._has_changes, self._is_pulling = False, True
        return [Pull()]
