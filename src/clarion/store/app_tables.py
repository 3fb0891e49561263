"""The statements that find and delete the rows of one app in a table."""

from __future__ import annotations

import msgspec

from clarion.store.statement import Statement, statement


class AppTable(msgspec.Struct, frozen=True):
    """A table with rows of apps, and the rest of its primary key."""

    name: str
    key: tuple[str, ...]
    # The index by which rows are found, if it is not that of the app and the key: its columns, and
    # more of the condition, if it does not begin with the app.
    order: str = ""
    where: str = ""
    # Tables without an index by app, whose rows go with those of this one.
    children: tuple[str, ...] = ()

    def find(self) -> Statement:
        """Return the statement that selects some keys."""
        return statement(
            f"find_{self.name}_of_app",
            f"""SELECT {", ".join(self.key)} FROM {self.name}
            WHERE {self.where}app_id = :app_id
            ORDER BY {self.order or ", ".join(("app_id", *self.key))} LIMIT :limit""",
        )

    def delete(self) -> Statement:
        """Return the statement that deletes one row."""
        key = " AND ".join(f"{name} = :{name}" for name in self.key)
        return statement(
            f"delete_{self.name}_of_app",
            f"DELETE FROM {self.name} WHERE app_id = :app_id AND {key} RETURNING 1",
        )


def delete_by_notification(table: str) -> Statement:
    """Return the statement that deletes the rows of one notification."""
    return statement(
        f"delete_{table}_of_notification", f"DELETE FROM {table} WHERE notification_id = :id"
    )
