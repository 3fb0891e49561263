"""The state of an inbox, the actions on it, and a notification as its clients see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from clarion.clock import to_rfc3339
from clarion.events.model import Actor, Notification, Target
from clarion.http.views import Timestamp


@dataclass(frozen=True, slots=True)
class InboxState:
    """How many notifications are unread, and the sequence number of the last change."""

    unread_count: int
    sequence: int


class InboxAction(StrEnum):
    """What a user can do with one notification."""

    READ = "read"
    UNREAD = "unread"
    DISMISS = "dismiss"
    CLICK = "click"


class Item(msgspec.Struct, kw_only=True):
    """A notification in an inbox. `sequence` is the number of its last change."""

    id: str
    type: str
    category: str
    priority: str
    title: str | None
    body: str
    deeplink: str | None
    image_url: str | None
    actor: Actor | None
    target: Target | None
    data: dict[str, Any]
    count: int
    read_at: Timestamp | None
    dismissed_at: Timestamp | None
    created_at: Timestamp
    sequence: int


def to_item(notification: Notification) -> Item:
    """Return a notification as the API shows it."""
    content = notification.content
    return Item(
        id=notification.id,
        type=notification.type,
        category=notification.category,
        priority=notification.priority.name.lower(),
        title=notification.title,
        body=notification.body,
        deeplink=content.deeplink,
        image_url=content.image_url,
        actor=content.actor,
        target=content.target,
        data=content.data,
        count=notification.count,
        read_at=_to_time(notification.read_at),
        dismissed_at=_to_time(notification.dismissed_at),
        created_at=to_rfc3339(notification.created_at),
        sequence=notification.sequence,
    )


def _to_time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else to_rfc3339(milliseconds)
