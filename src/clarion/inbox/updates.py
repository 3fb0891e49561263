"""The updates that live clients receive, over Server-Sent Events and sockets alike."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from clarion.inbox.model import Item, to_item

if TYPE_CHECKING:
    from clarion.events.model import Notification


class UpdateType(StrEnum):
    """What an update is about."""

    STATE = "state"  # the first of a stream, with the sequence after which it begins
    NOTIFICATION = "notification"  # it is unread: new, repeated, or marked unread again
    READ = "read"
    DISMISSED = "dismissed"
    COUNT = "count"  # only the unread count has changed
    RESYNC = "resync"  # too much was missed: load the list again


class Update(msgspec.Struct, omit_defaults=True):
    """One message of a live stream; to resume, a client sends the `sequence` of its last one."""

    type: UpdateType
    unread_count: int
    sequence: int
    item: Item | None = None


encode = msgspec.json.Encoder().encode


def to_update(notification: Notification, unread_count: int) -> Update:
    """Return the update for a notification that has changed."""
    if notification.dismissed_at is not None:
        update_type = UpdateType.DISMISSED
    elif notification.read_at is not None:
        update_type = UpdateType.READ
    else:
        update_type = UpdateType.NOTIFICATION
    return Update(update_type, unread_count, notification.sequence, to_item(notification))
