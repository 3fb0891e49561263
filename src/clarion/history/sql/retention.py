"""Notifications that were kept long enough, in SQL."""

from __future__ import annotations

from clarion.clock import first_id_of
from clarion.store.engine import Engine
from clarion.store.statement import statement

# Deliveries are in the order of their notifications' ids, so of time; each has at least one.
SELECT_OLD_NOTIFICATIONS = statement(
    "select_old_notifications",
    """SELECT notification_id, app_id, user_id FROM deliveries WHERE notification_id < :before
    ORDER BY notification_id LIMIT :limit""",
)


async def find_old(engine: Engine, before: int, limit: int) -> dict[tuple[str, str], list[str]]:
    """Return the ids of notifications made before a time, at most `limit`, by app and user."""
    rows = await engine.fetch_in_background(
        SELECT_OLD_NOTIFICATIONS, before=first_id_of(before), limit=limit
    )
    found: dict[tuple[str, str], list[str]] = {}
    for notification_id, app_id, user_id in rows:
        ids = found.setdefault((app_id, user_id), [])
        if notification_id not in ids[-1:]:
            ids.append(notification_id)
    return found
