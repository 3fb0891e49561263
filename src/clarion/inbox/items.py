"""The inbox as its clients see it: items, and the updates of live streams."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from clarion.clock import to_rfc3339

if TYPE_CHECKING:
    from clarion.events.model import Actor, Notification, Target


class ActorView(msgspec.Struct):
    """Who did it."""

    id: str | None
    name: str | None


class TargetView(msgspec.Struct):
    """What it was done to."""

    id: str | None
    type: str | None


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
    actor: ActorView | None
    target: TargetView | None
    data: dict[str, Any]
    count: int
    read_at: str | None
    dismissed_at: str | None
    created_at: str
    sequence: int


class Kind(StrEnum):
    """What an update says."""

    STATE = "state"  # the stream begins behind this number
    NOTIFICATION = "notification"  # it is there and unread: new, grown, or unread again
    READ = "read"
    DISMISSED = "dismissed"
    COUNT = "count"  # nothing to show, but the count is another
    RESYNC = "resync"  # too much was missed: load the list again


class Update(msgspec.Struct, omit_defaults=True):
    """One message of a live stream; who resumes names the `sequence` of the last one it got."""

    type: Kind
    unread_count: int
    sequence: int
    item: Item | None = None


encode = msgspec.json.Encoder().encode


def to_update(notification: Notification, unread_count: int) -> Update:
    """Say what became of a notification."""
    if notification.dismissed_at is not None:
        kind = Kind.DISMISSED
    elif notification.read_at is not None:
        kind = Kind.READ
    else:
        kind = Kind.NOTIFICATION
    return Update(kind, unread_count, notification.sequence, to_item(notification))


def to_item(notification: Notification) -> Item:
    """Return a notification as the wire has it."""
    content = notification.content
    return Item(
        id=notification.id,
        type=notification.type,
        category=notification.category.value,
        priority=notification.priority.name.lower(),
        title=notification.title,
        body=notification.body,
        deeplink=content.deeplink,
        image_url=content.image_url,
        actor=_actor(content.actor),
        target=_target(content.target),
        data=content.data,
        count=notification.count,
        read_at=_time(notification.read_at),
        dismissed_at=_time(notification.dismissed_at),
        created_at=to_rfc3339(notification.created_at),
        sequence=notification.sequence,
    )


def _actor(actor: Actor | None) -> ActorView | None:
    return None if actor is None else ActorView(actor.id, actor.name)


def _target(target: Target | None) -> TargetView | None:
    return None if target is None else TargetView(target.id, target.type)


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else to_rfc3339(milliseconds)
