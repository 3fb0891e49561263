"""Steps that show a notification in an inbox: the row of the inbox first, then the notification."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clarion.history.model import Notification
from clarion.history.sql.notifications import adding, updating
from clarion.history.tables import NOTIFICATIONS
from clarion.inbox.model import InboxUpdate
from clarion.inbox.sql.numbers import NEXT, REMEMBER, TAKE
from clarion.store.statement import Step

ADD_SHOWN = adding("add_shown_notification", NEXT)
ADD_HIDDEN = adding("add_hidden_notification")
UPDATE_SHOWN = updating(NEXT)
_SEQUENCE = NOTIFICATIONS.names.index("sequence")
_encode = msgspec.json.Encoder().encode


def add(notification: Notification, ended_deliveries: str | None) -> Iterator[Step]:
    """Yield the steps that add a notification, and show it if it is to be shown."""
    row = (*NOTIFICATIONS.bind(notification), ended_deliveries)
    if not notification.is_shown:
        yield ADD_HIDDEN.many((row,))
        return
    owner = {"app_id": notification.app_id, "user_id": notification.user_id}
    yield TAKE.step(**owner, unread=1)
    yield ADD_SHOWN.many(((*row[:_SEQUENCE], *row[_SEQUENCE + 1 :]),))
    yield REMEMBER.step(**owner)


def update(app_id: str, user_id: str, update: InboxUpdate) -> Iterator[Step]:
    """Yield the steps that give a notification another text and count, and show it."""
    owner = {"app_id": app_id, "user_id": user_id}
    yield TAKE.step(**owner, unread=int(update.is_new))
    yield UPDATE_SHOWN.guard(
        **owner,
        id=update.id,
        title=update.title,
        body=update.body,
        content=_encode(update.content).decode(),
        count=update.count,
        expected_count=update.expected_count,
        was_shown=int(not update.is_new),
    )
    yield REMEMBER.step(**owner)
