"""The two numbers of an inbox: how many unread, and the number of its last change.

Whatever changes what a person sees is a unit that first takes the inbox's row (on PostgreSQL that
is the lock under which numbers are given out in the order of commits), then writes the
notification with the next number, and then lets the inbox remember it. In a batch the first steps
of several units run before the second of any, so the next number is looked for among the
notifications themselves too.
"""

from __future__ import annotations

from clarion.store.statement import statement

_OF_PERSON = "app_id = :app_id AND user_id = :user_id"
# The highest number given so far. Both halves are one look into an index.
_HIGHEST = f"""(SELECT MAX(known.sequence) FROM (
SELECT sequence FROM inboxes WHERE {_OF_PERSON} UNION ALL
SELECT MAX(sequence) FROM notifications WHERE {_OF_PERSON} AND sequence > 0) AS known)"""
# Part of an INSERT or UPDATE of `notifications`, with the parameters :app_id and :user_id.
NEXT = f"COALESCE({_HIGHEST}, 0) + 1"

# Take the row, made if need be, and count what the unit makes unread or no longer unread.
TAKE = statement(
    "take_inbox",
    """INSERT INTO inboxes (app_id, user_id, unread_count, sequence)
    VALUES (:app_id, :user_id, :unread, 0)
    ON CONFLICT (app_id, user_id) DO UPDATE SET
    unread_count = inboxes.unread_count + excluded.unread_count""",
)
REMEMBER = statement(
    "remember_sequence",
    f"UPDATE inboxes SET sequence = COALESCE({_HIGHEST}, 0) WHERE {_OF_PERSON}",
)
