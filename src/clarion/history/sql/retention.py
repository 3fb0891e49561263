"""Notifications that were kept long enough, in SQL."""

from __future__ import annotations

from clarion.clock import first_id_of
from clarion.store.engine import Engine
from clarion.store.statement import statement

# Ids are in the order of time. A worker may have written a delivery of a notification that was
# deleted meanwhile: it is found by itself.
SELECT_OLD_NOTIFICATIONS = statement(
    "select_old_notifications",
    """SELECT * FROM (SELECT id, app_id, user_id FROM notifications WHERE id < :before
      ORDER BY id LIMIT :limit) AS old
    UNION SELECT * FROM (SELECT notification_id, app_id, user_id FROM deliveries
      WHERE notification_id < :before ORDER BY notification_id LIMIT :limit) AS left_behind""",
)


async def find_old(engine: Engine, before: int, limit: int) -> dict[tuple[str, str], list[str]]:
    """Return the ids of notifications made before a time, at most `limit`, by app and user."""
    rows = await engine.fetch_in_background(
        SELECT_OLD_NOTIFICATIONS, before=first_id_of(before), limit=limit
    )
    found: dict[tuple[str, str], list[str]] = {}
    for notification_id, app_id, user_id in sorted(rows)[:limit]:
        found.setdefault((app_id, user_id), []).append(notification_id)
    return found
