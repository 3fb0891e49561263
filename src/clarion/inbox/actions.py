"""What users do with their notifications; all of their open clients are notified."""

from __future__ import annotations

from dataclasses import dataclass

from clarion.clock import Clock
from clarion.history.model import Notification
from clarion.inbox.live import LiveClients
from clarion.inbox.model import InboxAction, InboxState
from clarion.inbox.port import Inboxes


@dataclass(frozen=True, slots=True)
class InboxActions:
    """Applies actions and wakes the live clients of the user."""

    inboxes: Inboxes
    live: LiveClients
    clock: Clock

    async def apply(
        self, action: InboxAction, app_id: str, user_id: str, notification_id: str
    ) -> Notification | None:
        """Apply an action and return the notification after it; None if it does not exist."""
        now = self.clock.now()
        changed = await self.inboxes.apply(action, app_id, user_id, notification_id, now)
        self.live.notify(app_id, user_id)
        return changed

    async def read_all(self, app_id: str, user_id: str) -> InboxState:
        """Mark all notifications read and return the state of the inbox after it."""
        state = await self.inboxes.read_all(app_id, user_id, self.clock.now())
        self.live.notify(app_id, user_id)
        return state
