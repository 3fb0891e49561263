"""A notification in an inbox as the API shows it."""

from __future__ import annotations

from typing import Any

import msgspec

from clarion.catalog.model import PriorityName
from clarion.clock import to_rfc3339
from clarion.history.model import Actor, Notification, Target
from clarion.http.views import Timestamp
from clarion.inbox.model import InboxRow, InboxRows


class InboxItem(msgspec.Struct):
    """A notification in an inbox. `sequence` is the number of its last change."""

    id: str
    """The id of the notification."""
    type: str
    """The notification type."""
    category: str
    """The category of the type."""
    priority: PriorityName
    """`low`, `medium`, `high` or `critical`."""
    title: str | None
    """The title, in the language of the user."""
    body: str
    """The text, in the language of the user."""
    deeplink: str | None
    """What a click opens."""
    image_url: str | None
    """The image to show."""
    actor: Actor | None
    """Who caused the event."""
    target: Target | None
    """What the event is about."""
    data: dict[str, Any]
    """The data of the event."""
    count: int
    """How many events it stands for: more than 1 if others were folded into it."""
    read_at: Timestamp | None
    """When it was read; null if it is unread."""
    dismissed_at: Timestamp | None
    """When it was dismissed; null if it was not."""
    created_at: Timestamp
    """When the notification was created."""
    sequence: int
    """The number of its last change."""


class InboxPage(msgspec.Struct):
    """A page of an inbox, newest first, with the state of the whole inbox."""

    items: list[InboxItem]
    """The notifications of this page, newest first."""
    next: str | None
    """The value of `?after=` for the next page; null on the last page."""
    unread_count: int
    """How many notifications of the whole inbox are unread."""
    sequence: int
    """The number of the last change to the inbox; streams resume after it."""


def to_item(notification: Notification) -> InboxItem:
    """Return a notification as the API shows it."""
    content = notification.content
    return InboxItem(
        id=notification.id,
        type=notification.type,
        category=notification.category,
        priority=notification.priority.label,
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


def to_page(page: InboxRows) -> InboxPage:
    """Return a page of an inbox as the API shows it."""
    rows, state = page.rows, page.state
    following = rows[-1].id if page.has_more else None
    return InboxPage([*map(_show, rows)], following, state.unread_count, state.sequence)


def _show(row: InboxRow) -> InboxItem:
    # By position: names would cost as much as all else that is done here.
    content, read_at = row.content, row.read_at
    data: Any = content.data
    return InboxItem(
        row.id,
        row.type,
        row.category,
        row.priority,
        row.title,
        row.body,
        content.deeplink,
        content.image_url,
        content.actor,
        content.target,
        data,
        row.count,
        None if read_at is None else to_rfc3339(read_at),
        None,
        to_rfc3339(row.created_at),
        row.sequence,
    )
