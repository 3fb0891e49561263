"""What has to be known to decide, in SQL: each kind of fact in one read for a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from clarion.catalog.model import Category, Priority
from clarion.events.model import Content, Earlier, Notification
from clarion.pages import Page
from clarion.store.keyed import keys_of
from clarion.store.statement import Row, statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.store.engine import Engine

# The columns that `read_notification` reads, in its order.
NOTIFICATION = """app_id, user_id, id, event_id, type, category, priority, title, body, content,
count, is_shown, folded_into, sequence, read_at, dismissed_at, expires_at, created_at"""

SELECT_EARLIER = statement(
    "select_earlier_notifications",
    """SELECT d.id, n.id, n.count, CASE WHEN n.is_shown = 1 AND n.read_at IS NULL
    AND n.dismissed_at IS NULL THEN 1 ELSE 0 END
    FROM dedupes d JOIN notifications n
    ON n.app_id = d.app_id AND n.user_id = d.user_id AND n.id = d.notification_id
    WHERE d.app_id = :app_id AND d.expires_at > :now
    AND d.id IN (SELECT key FROM json_each(:ids))""",
)
SELECT_USED = statement(
    "select_limit_counts",
    """SELECT id, used FROM limit_counts
    WHERE app_id = :app_id AND id IN (SELECT key FROM json_each(:ids))""",
)
SELECT_NOTIFICATIONS = statement(
    "select_notifications",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id
    AND user_id IN (SELECT key FROM json_each(:user_ids))
    AND id IN (SELECT key FROM json_each(:ids))""",
)
# By its id alone: the deliveries know whose it is.
FIND_NOTIFICATION = statement(
    "find_notification",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id AND id = :id
    AND user_id = (SELECT d.user_id FROM deliveries d WHERE d.notification_id = :id LIMIT 1)""",
)
OF_EVENT = statement(
    "select_notifications_of_event",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id
    AND event_id = :event_id AND id > :after ORDER BY id LIMIT :limit""",
)
_decode_content = msgspec.json.Decoder(Content).decode


class SqlFacts:
    """The `Facts` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def earlier(self, app_id: str, ids: Iterable[str], now: int) -> dict[str, Earlier]:
        """Return the notifications that hold dedupe keys."""
        rows = await self._engine.fetch(SELECT_EARLIER, app_id=app_id, ids=keys_of(ids), now=now)
        return {
            key: Earlier(notification_id=found, count=count, is_unread=bool(is_unread))
            for key, found, count, is_unread in rows
        }

    async def used(self, app_id: str, ids: Iterable[str]) -> dict[str, int]:
        """Return how much of limits is used."""
        rows = await self._engine.fetch(SELECT_USED, app_id=app_id, ids=keys_of(ids))
        return {row[0]: row[1] for row in rows}

    async def notifications(
        self, app_id: str, user_ids: Iterable[str], ids: Iterable[str]
    ) -> dict[str, Notification]:
        """Return notifications by their ids."""
        rows = await self._engine.fetch(
            SELECT_NOTIFICATIONS, app_id=app_id, user_ids=keys_of(user_ids), ids=keys_of(ids)
        )
        return {row[2]: read_notification(row) for row in rows}

    async def find(self, app_id: str, notification_id: str) -> Notification | None:
        """Return one notification, whosever it is."""
        rows = await self._engine.fetch(FIND_NOTIFICATION, app_id=app_id, id=notification_id)
        return read_notification(rows[0]) if rows else None

    async def of_event(
        self, app_id: str, event_id: str, *, after: str | None, limit: int
    ) -> Page[Notification]:
        """Return what an event came to."""
        rows = await self._engine.fetch(
            OF_EVENT, app_id=app_id, event_id=event_id, after=after or "", limit=limit + 1
        )
        items = tuple(read_notification(row) for row in rows[:limit])
        return Page(items, items[-1].id if len(rows) > limit else None)


def read_notification(row: Row) -> Notification:
    """Return the notification that a row holds."""
    return Notification(
        app_id=row[0],
        user_id=row[1],
        id=row[2],
        event_id=row[3],
        type=row[4],
        category=Category(row[5]),
        priority=Priority(row[6]),
        title=row[7],
        body=row[8],
        content=_decode_content(row[9]),
        count=row[10],
        is_shown=bool(row[11]),
        folded_into=row[12],
        sequence=row[13],
        read_at=row[14],
        dismissed_at=row[15],
        expires_at=row[16],
        created_at=row[17],
    )
