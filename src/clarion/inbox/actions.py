"""What people do with their notifications, and that all of their screens learn of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.clock import Clock
    from clarion.events.model import Notification
    from clarion.inbox.live import Live
    from clarion.inbox.model import InboxState
    from clarion.inbox.port import Inboxes


class Verb(StrEnum):
    """What can be done with one notification."""

    READ = "read"
    UNREAD = "unread"
    DISMISS = "dismiss"


class Acts:
    """Does it, and wakes the screens."""

    def __init__(self, inboxes: Inboxes, live: Live, clock: Clock) -> None:
        self._inboxes = inboxes
        self._live = live
        self._clock = clock

    async def act(
        self, verb: Verb, app_id: str, user_id: str, notification_id: str
    ) -> Notification | None:
        """Do it and return the notification as it is then; None if there is none such."""
        verbs = {
            Verb.READ: self._inboxes.read,
            Verb.UNREAD: self._inboxes.unread,
            Verb.DISMISS: self._inboxes.dismiss,
        }
        acted = await verbs[verb](app_id, user_id, notification_id, self._clock.now())
        self._live.notify(app_id, user_id)
        return acted

    async def read_all(self, app_id: str, user_id: str) -> InboxState:
        """Read everything and return the numbers behind that."""
        state = await self._inboxes.read_all(app_id, user_id, self._clock.now())
        self._live.notify(app_id, user_id)
        return state
