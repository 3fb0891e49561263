"""The updates that live clients receive, over Server-Sent Events and sockets alike."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from clarion.errors import FieldFault, InvalidFields
from clarion.history.model import Notification
from clarion.inbox.model import InboxState
from clarion.inbox.port import Inboxes
from clarion.inbox.views import InboxItem, to_item
from clarion.pages import parse_number

CHUNK = 50
# A client that missed more changes than this loads the list again: that is less work.
MISSED_LIMIT = 1000


class UpdateType(StrEnum):
    """The kind of an update."""

    STATE = "state"  # the first of a stream, with the sequence after which it begins
    NOTIFICATION = "notification"  # it is unread: new, repeated, or marked unread again
    READ = "read"
    DISMISSED = "dismissed"
    COUNT = "count"  # only the unread count has changed
    RESYNC = "resync"  # too much was missed: load the list again


class Update(msgspec.Struct, omit_defaults=True):
    """One message of a live stream; to resume, a client sends the `sequence` of its last one."""

    type: UpdateType
    unread_count: int
    sequence: int
    item: InboxItem | None = None


encode = msgspec.json.Encoder().encode


def to_update(notification: Notification, unread_count: int) -> Update:
    """Return the update for a notification that has changed."""
    if notification.dismissed_at is not None:
        update_type = UpdateType.DISMISSED
    elif notification.read_at is not None:
        update_type = UpdateType.READ
    else:
        update_type = UpdateType.NOTIFICATION
    return Update(update_type, unread_count, notification.sequence, to_item(notification))


def read_sequence(text: str, field: str) -> int:
    """Return the sequence that a client resumes after; `InvalidFields` if no update can have it."""
    number = parse_number(text)
    if number is None:
        raise InvalidFields(FieldFault(field, "must be the sequence of an update"))
    return number


class Feed:
    """The changes of an inbox that one live client has not received yet.

    A feed holds two numbers and no notifications: what changed is read from the store when the
    client can take it. However slow the client is, nothing piles up for it here.
    """

    __slots__ = ("_inboxes", "_owner", "_sent_count", "sequence")

    def __init__(self, inboxes: Inboxes, app_id: str, user_id: str) -> None:
        self._inboxes = inboxes
        self._owner = (app_id, user_id)
        # The unread count that the client knows.
        self._sent_count = 0
        self.sequence = 0

    async def begin(self, after: int | None) -> Update:
        """Begin after a sequence number, or without one after the last change."""
        state = await self._inboxes.state(*self._owner)
        self.sequence = state.sequence if after is None else after
        self._sent_count = state.unread_count
        return Update(UpdateType.STATE, state.unread_count, self.sequence)

    async def more(self) -> tuple[list[Update], bool]:
        """Return the next updates, and whether these are all for now."""
        changes, state = await self._read()
        if not changes and state.sequence > self.sequence:
            # A change was committed between the two reads: the count alone would be sent before it.
            changes, state = await self._read()
        count, known_count = state.unread_count, self._sent_count
        self._sent_count = count
        if not 0 <= state.sequence - self.sequence <= MISSED_LIMIT:
            self.sequence = state.sequence
            return [Update(UpdateType.RESYNC, count, self.sequence)], True
        if changes:
            self.sequence = changes[-1].sequence
        elif count != known_count:
            return [Update(UpdateType.COUNT, count, self.sequence)], True
        return [to_update(each, count) for each in changes], len(changes) < CHUNK

    async def _read(self) -> tuple[tuple[Notification, ...], InboxState]:
        changes = await self._inboxes.changes(*self._owner, self.sequence, CHUNK)
        # Read after the changes, so that the count of the last update is not older than it.
        return changes, await self._inboxes.state(*self._owner)
