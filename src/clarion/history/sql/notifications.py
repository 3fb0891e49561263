"""Notifications in SQL."""

from __future__ import annotations

from collections.abc import Iterable

from clarion.history.model import Notification
from clarion.history.tables import NOTIFICATIONS
from clarion.pages import Page
from clarion.store.engine import Engine
from clarion.store.statement import Statement, Value, keys_of, statement

# The inbox reads the same rows.
NOTIFICATION = NOTIFICATIONS.columns
read_notification = NOTIFICATIONS.read
_OF_N = ", ".join(f"n.{each}" for each in NOTIFICATION.split(", "))
# Sorts after every id: they are written in hexadecimal digits.
_NEWEST = "g"

# For statements of other slices. The dedupe key `d` is held by the notification `n`: how many
# events that stands for, whether it is unread, whether it was deleted.
HOLDER = """COALESCE(n.count, 0),
    CASE WHEN n.is_shown = 1 AND n.read_at IS NULL AND n.dismissed_at IS NULL THEN 1 ELSE 0 END,
    CASE WHEN n.id IS NULL THEN 1 ELSE 0 END"""
JOIN_HOLDER = """LEFT JOIN notifications n
    ON n.app_id = d.app_id AND n.user_id = d.user_id AND n.id = d.notification_id"""


def find_later(sequence: str) -> str:
    """Return the query for the highest sequence of a notification of a user after another one."""
    return f"""SELECT n.sequence FROM notifications n
    WHERE n.app_id = :app_id AND n.user_id = :user_id AND n.sequence > {sequence}
    AND n.sequence > 0 ORDER BY n.sequence DESC LIMIT 1"""


def of_event(columns: str, limit: int) -> str:
    """Return the query for the first notifications of the event `:id`."""
    return f"""SELECT {columns} FROM notifications WHERE app_id = :app_id AND event_id = :id
      ORDER BY id LIMIT {limit}"""


def is_some_waiting(limit: int) -> str:
    """Return the condition that a delivery of the first notifications of an event waits."""
    return f"""EXISTS (SELECT 1 FROM (
      {of_event("id", limit)}) AS n
    JOIN deliveries d ON d.notification_id = n.id AND d.status IN ('held', 'collected'))"""


def is_missing(jobs: str) -> str:
    """Return the condition that the notification of a held job is gone."""
    return f"""(SELECT n.id FROM notifications n WHERE n.app_id = {jobs}.app_id
      AND n.user_id = {jobs}.user_id AND n.id = {jobs}.subject) IS NULL"""


def adding(name: str, sequence: str = ":sequence") -> Statement:
    """Return the statement that adds a notification; `sequence` is an expression."""
    parameters = NOTIFICATIONS.parameters.replace(":sequence", sequence)
    return statement(
        name,
        f"""INSERT INTO notifications ({NOTIFICATION}, ended_deliveries)
        VALUES ({parameters}, :ended_deliveries)""",
    )


def updating(sequence: str) -> Statement:
    """Return the guard that gives an unread notification another text and count."""
    return statement(
        "update_notification",
        f"""UPDATE notifications SET title = :title, body = :body, content = :content,
        count = :count, is_shown = 1, sequence = {sequence}
        WHERE app_id = :app_id AND user_id = :user_id AND id = :id AND count = :expected_count
        AND is_shown = :was_shown AND read_at IS NULL AND dismissed_at IS NULL RETURNING id""",
    )


SELECT_NOTIFICATIONS = statement(
    "select_notifications",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id
    AND user_id IN (SELECT key FROM json_each(:user_ids))
    AND id IN (SELECT key FROM json_each(:ids))""",
)
GET_NOTIFICATION = statement(
    "get_notification",
    f"SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id AND id = :id",
)
LIST_OF_EVENT = statement(
    "list_notifications_of_event",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id
    AND event_id = :event_id AND id > :after ORDER BY id LIMIT :limit""",
)
# Ids of events grow with time, so this is the order of an index that exists for other reasons.
LIST_NEWEST = statement(
    "list_newest_notifications",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id
    AND (event_id, id) < (:before_event, :before_id)
    ORDER BY event_id DESC, id DESC LIMIT :limit""",
)
LIST_NEWEST_OF_USER = statement(
    "list_newest_notifications_of_user",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE app_id = :app_id AND user_id = :user_id
    AND id < :before_id ORDER BY id DESC LIMIT :limit""",
)
LIST_NEWEST_FAILED = statement(
    "list_newest_failed_notifications",
    f"""SELECT {_OF_N} FROM (
      SELECT DISTINCT notification_id, user_id FROM deliveries WHERE app_id = :app_id
      AND status = 'failed' AND notification_id < :before_id
      ORDER BY notification_id DESC LIMIT :limit) AS failed
    JOIN notifications n ON n.app_id = :app_id AND n.user_id = failed.user_id
    AND n.id = failed.notification_id ORDER BY n.id DESC""",
)


class SqlNotificationReader:
    """The `NotificationReader` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_many(
        self, app_id: str, user_ids: Iterable[str], ids: Iterable[str]
    ) -> dict[str, Notification]:
        rows = await self._engine.fetch(
            SELECT_NOTIFICATIONS, app_id=app_id, user_ids=keys_of(user_ids), ids=keys_of(ids)
        )
        return {found.id: found for found in map(read_notification, rows)}

    async def get(self, app_id: str, notification_id: str) -> Notification | None:
        rows = await self._engine.fetch(GET_NOTIFICATION, app_id=app_id, id=notification_id)
        return read_notification(rows[0]) if rows else None

    async def list_newest(
        self, app_id: str, *, before: tuple[str, str] | None, limit: int
    ) -> tuple[Notification, ...]:
        event_id, id_ = before or (_NEWEST, _NEWEST)
        return await self._list(
            LIST_NEWEST, app_id=app_id, before_event=event_id, before_id=id_, limit=limit
        )

    async def list_newest_of_user(
        self, app_id: str, user_id: str, *, before: str | None, limit: int
    ) -> tuple[Notification, ...]:
        before_id = before or _NEWEST
        return await self._list(
            LIST_NEWEST_OF_USER, app_id=app_id, user_id=user_id, before_id=before_id, limit=limit
        )

    async def list_newest_failed(
        self, app_id: str, *, before: str | None, limit: int
    ) -> tuple[Notification, ...]:
        return await self._list(
            LIST_NEWEST_FAILED, app_id=app_id, before_id=before or _NEWEST, limit=limit
        )

    async def _list(self, listing: Statement, **values: Value) -> tuple[Notification, ...]:
        return tuple(map(read_notification, await self._engine.fetch(listing, **values)))

    async def list_of_event(
        self, app_id: str, event_id: str, *, after: str | None, limit: int
    ) -> Page[Notification]:
        rows = await self._engine.fetch(
            LIST_OF_EVENT, app_id=app_id, event_id=event_id, after=after or "", limit=limit + 1
        )
        items = tuple(map(read_notification, rows[:limit]))
        return Page(items, items[-1].id if len(rows) > limit else None)
