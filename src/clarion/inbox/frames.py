"""The frames of the user socket. The server sends updates, see `feed.py`."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from clarion.inbox.model import InboxAction
from clarion.sockets.protocol import ClientFrame, Ping, Pong, Sequence

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"\A[!-~]+\Z")]


class Hello(ClientFrame, tag="hello"):
    """Authenticates a user's client; `after` is the sequence of the last update it received."""

    token: str
    after: Sequence | None = None


class Action(ClientFrame):
    """What a user does with one notification."""

    id: Id
    action: ClassVar[InboxAction]


class Read(Action, tag="read"):
    action = InboxAction.READ


class Unread(Action, tag="unread"):
    action = InboxAction.UNREAD


class Dismiss(Action, tag="dismiss"):
    action = InboxAction.DISMISS


class Click(Action, tag="click"):
    action = InboxAction.CLICK


Frame = Hello | Read | Unread | Dismiss | Click | Ping | Pong
decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


class _Error(msgspec.Struct, tag_field="type", tag="error"):
    id: str
    code: str


def encode_error(notification_id: str, code: str) -> bytes:
    """Return the frame for an action that failed, with a code of the API's errors."""
    return msgspec.json.encode(_Error(notification_id, code))
