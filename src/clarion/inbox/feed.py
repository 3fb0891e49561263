"""The updates that one live client has not received yet.

A feed holds two numbers and no notifications: what changed is read from the store when the client
can take it. However slow the client is, nothing piles up for it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.inbox.updates import Update, UpdateType, to_update

if TYPE_CHECKING:
    from clarion.inbox.model import InboxState
    from clarion.inbox.port import Inboxes

CHUNK = 50
# A client that missed more changes than this loads the list again: that is less work.
MISSED_LIMIT = 1000


class Feed:
    """The changes of an inbox after a sequence number."""

    __slots__ = ("_app_id", "_inboxes", "_sent_count", "_user_id", "sequence")

    def __init__(self, inboxes: Inboxes, app_id: str, user_id: str) -> None:
        self._inboxes = inboxes
        self._app_id = app_id
        self._user_id = user_id
        # The unread count that the client knows.
        self._sent_count = 0
        self.sequence = 0

    async def begin(self, after: int | None) -> Update:
        """Begin after a sequence number, or without one after the last change."""
        state = await self._inboxes.state(self._app_id, self._user_id)
        self.sequence = state.sequence if after is None else after
        self._sent_count = state.unread_count
        return Update(UpdateType.STATE, state.unread_count, self.sequence)

    async def more(self) -> tuple[list[Update], bool]:
        """Return the next updates, and whether these are all for now."""
        changes = await self._inboxes.changes(self._app_id, self._user_id, self.sequence, CHUNK)
        # Read after the changes, so that the count of the last update is not older than it.
        state = await self._inboxes.state(self._app_id, self._user_id)
        if not 0 <= state.sequence - self.sequence <= MISSED_LIMIT:
            return [self._resync(state)], True
        updates = [to_update(each, state.unread_count) for each in changes]
        if changes:
            self.sequence = changes[-1].sequence
        elif state.unread_count != self._sent_count:
            updates = [Update(UpdateType.COUNT, state.unread_count, self.sequence)]
        self._sent_count = state.unread_count
        return updates, len(changes) < CHUNK

    def _resync(self, state: InboxState) -> Update:
        self.sequence, self._sent_count = state.sequence, state.unread_count
        return Update(UpdateType.RESYNC, state.unread_count, state.sequence)
