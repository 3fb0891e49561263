"""The inboxes of people."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from clarion.catalog.model import Category
from clarion.events.model import Notification
from clarion.inbox.model import InboxState
from clarion.pages import Page


class Inboxes(Protocol):
    """What people see, and what they did with it.

    Every change gives the notification the next number of its inbox, its `sequence`; numbers
    become visible in their order, on all nodes. The unread count is exact: those that are shown,
    not read and not dismissed. What is not shown is as if it were not there.
    """

    async def page(
        self,
        app_id: str,
        user_id: str,
        *,
        unread: bool,
        category: Category | None,
        after: str | None,
        limit: int,
    ) -> Page[Notification]:
        """Return what is not dismissed, newest first; with `unread` only what is not read."""
        ...

    async def state(self, app_id: str, user_id: str) -> InboxState:
        """Return the two numbers; zeros for somebody of whom nothing is known. One look."""
        ...

    async def states(self, app_id: str, user_ids: Collection[str]) -> Mapping[str, InboxState]:
        """Return the numbers of several people, at most 1,000; who has none is left out."""
        ...

    async def get(self, app_id: str, user_id: str, notification_id: str) -> Notification | None:
        """Return one notification, also a dismissed one, or None."""
        ...

    async def read(
        self, app_id: str, user_id: str, notification_id: str, now: int
    ) -> Notification | None:
        """Mark it read and return it as it is then; None if there is none such.

        Again changes nothing, and gives no number; nor does it for a dismissed one.
        """
        ...

    async def unread(
        self, app_id: str, user_id: str, notification_id: str, now: int
    ) -> Notification | None:
        """Mark it unread. As `read`: a dismissed one stays as it is."""
        ...

    async def dismiss(
        self, app_id: str, user_id: str, notification_id: str, now: int
    ) -> Notification | None:
        """Take it out of the list for good; if it was unread it counts no more. As `read`."""
        ...

    async def read_all(self, app_id: str, user_id: str, now: int) -> InboxState:
        """Mark read what is unread now, oldest first, at most 1,000 in one commit.

        What comes while it works may stay unread. Returns the numbers behind it.
        """
        ...

    async def forget(self, app_id: str, user_id: str, ids: Collection[str]) -> None:
        """Delete notifications with their deliveries and attempts; the unread count follows."""
        ...

    async def changes(
        self, app_id: str, user_id: str, after: int, limit: int
    ) -> tuple[Notification, ...]:
        """Return those whose last change has a number above `after`, in that order.

        Dismissed ones too. One that changed several times is there once, as it is now.
        """
        ...
