"""What one screen has not been told yet.

A feed holds two numbers and no notifications: what changed is read from the store when the screen
can take it. However slow the screen is, nothing piles up for it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.inbox.items import Kind, Update, to_update

if TYPE_CHECKING:
    from clarion.inbox.model import InboxState
    from clarion.inbox.port import Inboxes

CHUNK = 50
# Who missed more changes than this loads the list again; that is less than to tell them all.
MISSED_LIMIT = 1000


class Feed:
    """The changes of an inbox behind a number."""

    __slots__ = ("_app_id", "_inboxes", "_told", "_user_id", "sequence")

    def __init__(self, inboxes: Inboxes, app_id: str, user_id: str) -> None:
        self._inboxes = inboxes
        self._app_id = app_id
        self._user_id = user_id
        self._told = 0
        self.sequence = 0

    async def begin(self, after: int | None) -> Update:
        """Begin behind a number, or without one behind the last change there is."""
        state = await self._inboxes.state(self._app_id, self._user_id)
        self.sequence = state.sequence if after is None else after
        self._told = state.unread_count
        return Update(Kind.STATE, state.unread_count, self.sequence)

    async def more(self) -> tuple[list[Update], bool]:
        """Return what comes next, and whether that is all for now."""
        changes = await self._inboxes.changes(self._app_id, self._user_id, self.sequence, CHUNK)
        # Read behind the changes, so that the count of the last update is not older than it.
        state = await self._inboxes.state(self._app_id, self._user_id)
        if not 0 <= state.sequence - self.sequence <= MISSED_LIMIT:
            return [self._resync(state)], True
        updates = [to_update(each, state.unread_count) for each in changes]
        if changes:
            self.sequence = changes[-1].sequence
        elif state.unread_count != self._told:
            updates = [Update(Kind.COUNT, state.unread_count, self.sequence)]
        self._told = state.unread_count
        return updates, len(changes) < CHUNK

    def _resync(self, state: InboxState) -> Update:
        self.sequence, self._told = state.sequence, state.unread_count
        return Update(Kind.RESYNC, state.unread_count, state.sequence)
