"""The responses of the API. Fields that a newer server adds are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from .errors import FieldFault


class AcceptedEvent(msgspec.Struct, frozen=True):
    """An event that is stored, and will be decided on."""

    event_id: str
    status: str
    created_at: datetime


class Published(msgspec.Struct, frozen=True):
    """What was published: the message to the devices, and the event for the followers."""

    event_id: str
    message_id: str
    topic: str
    created_at: datetime


class BatchResult(msgspec.Struct, frozen=True):
    """What became of one event of a batch: an id, or the faults for which it was refused."""

    status: str
    event_id: str | None = None
    code: str | None = None
    errors: tuple[FieldFault, ...] = ()


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """An item of an inbox."""

    id: str
    type: str
    category: str
    priority: str
    title: str | None = None
    body: str | None = None
    deeplink: str | None = None
    image_url: str | None = None
    actor: dict[str, Any] | None = None
    target: dict[str, Any] | None = None
    data: dict[str, Any] = {}
    count: int = 1
    read_at: datetime | None = None
    dismissed_at: datetime | None = None
    created_at: datetime
    sequence: int


class UnreadCount(msgspec.Struct, frozen=True):
    """How many notifications are unread, as of a change of the inbox."""

    unread_count: int
    sequence: int


class NotificationPage(msgspec.Struct, frozen=True):
    """A page of an inbox, newest first; `next` continues it."""

    items: tuple[Notification, ...]
    next: str | None
    unread_count: int
    sequence: int


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an inbox; `item` is the whole notification as it is now.

    After `resync` the list has to be loaded again: too many changes were missed.
    """

    type: Literal["state", "notification", "read", "dismissed", "count", "resync", "end"]
    unread_count: int | None = None
    sequence: int | None = None
    item: Notification | None = None
    reason: str | None = None
