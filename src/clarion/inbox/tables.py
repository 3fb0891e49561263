"""The table of inboxes: the two numbers of each user."""

from __future__ import annotations

from clarion.store.table import APP_ID, PLAIN, USER_ID, Owner, Stays, Table

INBOXES = Table(
    "inboxes",
    tuple,
    key=("app_id", "user_id"),
    owner=Owner.USER,
    section="inbox",
    columns={"app_id": APP_ID, "user_id": USER_ID, "unread_count": PLAIN, "sequence": PLAIN},
    ends=Stays("One row for each user; erased with the user."),
    shard=("app_id", "user_id"),
)
TABLES = (INBOXES,)
