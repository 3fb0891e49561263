"""The state of an inbox, the actions on it, and a notification as its clients see it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from clarion.catalog.model import PriorityName
from clarion.clock import to_rfc3339
from clarion.history.model import Actor, Content, Notification, Target
from clarion.http.shapes import PAGE_DEFAULT
from clarion.http.views import Timestamp


class InboxState(msgspec.Struct, frozen=True):
    """How many notifications are unread, and the sequence number of the last change."""

    unread_count: int
    """How many notifications are unread."""
    sequence: int
    """The number of the last change to the inbox; streams resume after it."""


class InboxAction(StrEnum):
    """What a user can do with one notification."""

    READ = "read"
    UNREAD = "unread"
    DISMISS = "dismiss"
    CLICK = "click"


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

    @property
    def outline(self) -> PageOutline:
        ids = [each.id for each in self.items]
        state = InboxState(self.unread_count, self.sequence)
        return PageOutline(ids, self.next is not None, state)


class PageOutline(NamedTuple):
    """What a page of an inbox follows from.

    A notification that changes has another sequence. One that is deleted takes none, but its id is
    missing.
    """

    ids: list[str]
    has_more: bool
    state: InboxState


class InboxUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """New text and count of a notification; `is_new` if the inbox does not show it yet.

    Fails if the stored count is not the `expected_count`, or it was read or dismissed.
    """

    id: str
    title: str | None
    body: str
    content: Content
    count: int
    expected_count: int
    is_new: bool


class InboxQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is listed of an inbox, as the query of a request has it."""

    unread: bool = False
    category: str | None = None
    limit: int = PAGE_DEFAULT
    after: str | None = None


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
