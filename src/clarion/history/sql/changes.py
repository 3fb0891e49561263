"""Statements that find and change notifications as an inbox shows them.

The inbox gives each change its number: `sequence` is the expression for it.
"""

from __future__ import annotations

from clarion.history.sql.listings import IS_LISTED, IS_READ, IS_UNREAD, OF_USER
from clarion.history.sql.notifications import NOTIFICATION
from clarion.store.statement import Statement, statement

SELECT = statement(
    "select_shown_notification",
    f"SELECT {NOTIFICATION} FROM notifications WHERE {OF_USER} AND id = :id AND is_shown = 1",
)
# SQLite begins to read an index at the first bound that is named. The second one is the condition
# of the index.
SELECT_CHANGES = statement(
    "select_inbox_changes",
    f"""SELECT {NOTIFICATION} FROM notifications WHERE {OF_USER} AND sequence > :since
    AND sequence > 0 ORDER BY sequence LIMIT :limit""",
)
SELECT_UNREAD_IDS = statement(
    "select_unread_ids",
    f"SELECT id FROM notifications WHERE {IS_UNREAD} AND id > :after ORDER BY id LIMIT :limit",
)


def is_one(condition: str) -> str:
    """Return the condition that the notification `:id` meets another condition."""
    return f"EXISTS (SELECT 1 FROM notifications WHERE {condition} AND id = :id)"


def reading(sequence: str) -> Statement:
    """Return the guard that makes an unread notification read."""
    change = "read_at = :now, first_read_at = COALESCE(first_read_at, :now)"
    return _change("read_notification", change, IS_UNREAD, sequence)


def unreading(sequence: str) -> Statement:
    """Return the guard that makes a read notification unread."""
    return _change("unread_notification", "read_at = NULL", IS_READ, sequence)


def dismissing(sequence: str) -> Statement:
    """Return the guard that dismisses a notification."""
    return _change("dismiss_notification", "dismissed_at = :now", IS_LISTED, sequence)


def _change(name: str, change: str, condition: str, sequence: str) -> Statement:
    return statement(
        name,
        f"""UPDATE notifications SET {change}, sequence = {sequence}
        WHERE {condition} AND id = :id RETURNING {NOTIFICATION}""",
    )


# Nobody sees that it was clicked, so it gets no number.
CLICK = statement(
    "click_notification",
    f"""UPDATE notifications SET clicked_at = :now WHERE {IS_LISTED} AND id = :id
    AND clicked_at IS NULL RETURNING {NOTIFICATION}""",
)
DELETE = statement("delete_notification", f"DELETE FROM notifications WHERE {OF_USER} AND id = :id")
DELETE_DELIVERIES = statement(
    "delete_deliveries", "DELETE FROM deliveries WHERE notification_id = :id"
)
DELETE_ATTEMPTS = statement("delete_attempts", "DELETE FROM attempts WHERE notification_id = :id")
