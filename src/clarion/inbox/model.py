"""The state of an inbox, what it lists, and the actions on it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from clarion.catalog.model import PriorityName
from clarion.history.model import Actor, Content, Target
from clarion.pages import PAGE_DEFAULT


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


class InboxContent(msgspec.Struct):
    """The part of a notification's content that an inbox shows; its data is not decoded."""

    data: msgspec.Raw = msgspec.Raw(b"{}")
    actor: Actor | None = None
    target: Target | None = None
    deeplink: str | None = None
    image_url: str | None = None


class InboxRow(msgspec.Struct):
    """A notification in an inbox; none that is listed is dismissed."""

    id: str
    type: str
    category: str
    priority: PriorityName
    title: str | None
    body: str
    content: InboxContent
    count: int
    read_at: int | None
    created_at: int
    sequence: int


class InboxRows(NamedTuple):
    """A page of an inbox, newest first, with the state of the whole inbox."""

    rows: list[InboxRow]
    has_more: bool
    state: InboxState

    @property
    def outline(self) -> PageOutline:
        return PageOutline([each.id for each in self.rows], self.has_more, self.state)


class PageOutline(NamedTuple):
    """The values that determine a page of an inbox.

    A changed notification has another sequence. A deleted one has none, but its id is missing.
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
    """The selection of an inbox list, from the query of a request."""

    unread: bool = False
    category: str | None = None
    limit: int = PAGE_DEFAULT
    after: str | None = None
