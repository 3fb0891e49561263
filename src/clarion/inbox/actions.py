"""What users do with their notifications; all of their open clients are notified."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.clock import Clock
    from clarion.events.model import Notification
    from clarion.inbox.live import LiveClients
    from clarion.inbox.model import InboxAction, InboxState
    from clarion.inbox.port import Inboxes


class InboxActions:
    """Applies actions and wakes the live clients of the user."""

    def __init__(self, inboxes: Inboxes, live: LiveClients, clock: Clock) -> None:
        self._inboxes = inboxes
        self._live = live
        self._clock = clock

    async def apply(
        self, action: InboxAction, app_id: str, user_id: str, notification_id: str
    ) -> Notification | None:
        """Apply an action and return the notification after it; None if it does not exist."""
        changed = await self._inboxes.apply(
            action, app_id, user_id, notification_id, self._clock.now()
        )
        self._live.notify(app_id, user_id)
        return changed

    async def read_all(self, app_id: str, user_id: str) -> InboxState:
        """Mark all notifications read and return the state of the inbox after it."""
        state = await self._inboxes.read_all(app_id, user_id, self._clock.now())
        self._live.notify(app_id, user_id)
        return state
