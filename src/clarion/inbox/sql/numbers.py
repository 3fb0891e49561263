"""Steps that keep the two numbers of an inbox: its unread count and its last sequence.

A unit that changes what a user sees first locks the row of the inbox (on PostgreSQL numbers are
given out in the order of commits that way), then writes the notification with the next number, and
then stores that number in the inbox. In a batch the first steps of several units run before the
second of any, so the next number is looked for among the notifications themselves too.
"""

from __future__ import annotations

from clarion.history.sql.notifications import find_later
from clarion.store.statement import statement

OF_USER = "app_id = :app_id AND user_id = :user_id"
# The highest number given so far, of the row of an inbox: its own, or that of a notification.
_HIGHEST = f"COALESCE(({find_later('inboxes.sequence')}), inboxes.sequence)"
# Part of an INSERT or UPDATE of `notifications`, with the parameters :app_id and :user_id.
NEXT = f"COALESCE((SELECT {_HIGHEST} FROM inboxes WHERE {OF_USER}), 0) + 1"

# Locks the row, inserted if need be, and adds what the unit makes unread or no longer unread.
TAKE = statement(
    "take_inbox",
    """INSERT INTO inboxes (app_id, user_id, unread_count, sequence)
    VALUES (:app_id, :user_id, :unread, 0)
    ON CONFLICT (app_id, user_id) DO UPDATE SET
    unread_count = inboxes.unread_count + excluded.unread_count""",
)
# Locks the row. It is not inserted: of an erased user nothing is left, and nothing comes back.
LOCK = statement("lock_inbox", f"UPDATE inboxes SET sequence = sequence WHERE {OF_USER}")
REMEMBER = statement(
    "remember_sequence",
    f"UPDATE inboxes SET sequence = {_HIGHEST} WHERE {OF_USER}",
)
# Counts a change that gives no notification a number: the pages that clients have are not current.
# Locks the row, too.
COUNT_CHANGE = statement(
    "count_change_of_inbox", f"UPDATE inboxes SET sequence = sequence + 1 WHERE {OF_USER}"
)
