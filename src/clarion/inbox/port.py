"""The inboxes of users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from clarion.history.model import Notification
from clarion.inbox.model import InboxAction, InboxQuery, InboxRows, InboxState, PageOutline


class Inboxes(Protocol):
    """The notifications that users see, and whether they have read or dismissed them.

    Every change gives the notification the next number of its inbox, its `sequence`; numbers
    become visible in their order, on all nodes. The unread count is exact: notifications that are
    shown, not read and not dismissed. A notification that is not shown is never returned.
    """

    async def state(self, app_id: str, user_id: str) -> InboxState:
        """Return the count and the sequence; zeros for an unknown user. One indexed read."""

    async def states(self, app_id: str, user_ids: Collection[str]) -> Mapping[str, InboxState]:
        """Return the states of at most 1,000 users; those who have none are left out."""

    async def get(self, app_id: str, user_id: str, notification_id: str) -> Notification | None:
        """Return one notification, also a dismissed one, or None."""

    async def apply(
        self, action: InboxAction, app_id: str, user_id: str, notification_id: str, now: int
    ) -> Notification | None:
        """Apply an action and return the resulting notification; None if it does not exist.

        A dismissed notification leaves the list and the unread count permanently. An action that
        changes nothing, a click, and any action on a dismissed notification gets no number.
        """

    async def read_all(self, app_id: str, user_id: str, now: int) -> InboxState:
        """Mark everything read, oldest first, at most 1,000 in one commit; return the state.

        A notification that arrives meanwhile may stay unread.
        """

    async def forget(self, app_id: str, user_id: str, ids: Collection[str]) -> None:
        """Delete notifications with their deliveries and attempts; the unread count follows."""

    async def changes(
        self, app_id: str, user_id: str, after: int, limit: int
    ) -> tuple[Notification, ...]:
        """Return those whose last change has a number above `after`, in that order.

        This includes dismissed ones. One that changed several times is returned once, as it is now.
        """


class InboxPages(Protocol):
    """Pages of inboxes as the API shows them.

    A page has notifications that are not dismissed, newest first, and the state of the same moment;
    the state of an empty page may be older. `InvalidFields` if the cursor was not created by
    Clarion.
    """

    async def read(self, app_id: str, user_id: str, query: InboxQuery) -> InboxRows:
        """Return a page. The `data` of its items may be encoded already (`msgspec.Raw`)."""

    async def outline(self, app_id: str, user_id: str, query: InboxQuery) -> PageOutline:
        """Return the outline of the same page, which costs less than the page."""
