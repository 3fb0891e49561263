"""The statements that find, show and delete the rows of one table that are about one user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from clarion.store.statement import Statement, Value, statement

# Read, or deleted in one commit: others wait for it a few milliseconds.
CHUNK = 200
# Shown together: a row may have tens of kilobytes.
_SHOWN = 50
# What comes before every value of a column; of all others, an empty text.
_FIRST: dict[str, Value] = {
    "number": -1,
    "invalidated_at": -1,
    "until": -1,
    "token_hash": b"",
    "hash": b"",
}


class Shape(Enum):
    """How an export shows the values of a column."""

    PLAIN = auto()
    TIME = auto()  # milliseconds, shown as RFC 3339
    FLAG = auto()  # 0 or 1
    JSON = auto()
    PAYLOAD = auto()  # bytes that are JSON, or else are shown in base64


class Owner(Enum):
    """By what the rows of a user are found; the value is the condition."""

    USER = "app_id = :app_id AND user_id = :user_id"
    ID = "app_id = :app_id AND id = :user_id"
    # The id begins with that of the user and a line break, which no user id has.
    PREFIX = "app_id = :app_id AND SUBSTR(id, 1, :length) = :prefix"
    DEVICE = "app_id = :app_id AND device_id = :device_id"
    DEVICE_OF_USER = "app_id = :app_id AND device_id = :device_id AND user_id = :user_id"
    # The messages of a device while it was the user's.
    DEVICE_MESSAGES = (
        "app_id = :app_id AND device_id = :device_id AND sequence > :since AND sequence <= :until"
    )
    TOKEN = "app_id = :app_id AND token_hash = :token_hash"  # noqa: S105 - a condition
    NOTIFICATION = "notification_id = :notification_id"
    # Found, changed and shown by code of its own: a user is one of many in them.
    EVENT = ""


OF_DEVICES = frozenset({Owner.DEVICE, Owner.DEVICE_OF_USER, Owner.DEVICE_MESSAGES, Owner.TOKEN})


@dataclass(frozen=True, kw_only=True)
class PersonalTable:
    """A table with rows about users: how they are found, erased and exported.

    `columns` are those that an export shows as `section`; `omitted` has the others and the reason.
    """

    table: str
    key: tuple[str, ...]
    owner: Owner
    section: str
    columns: Mapping[str, Shape] = field(default_factory=dict)
    omitted: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def find(self) -> Statement:
        """The keys of rows of the user, in no order."""
        key = ", ".join(self.key)
        return statement(
            f"find_personal_{self.table}",
            f"SELECT {key} FROM {self.table} WHERE {self.owner.value} LIMIT {CHUNK}",
        )

    @cached_property
    def delete(self) -> Statement:
        """Deletes a row that was found, if it is still the user's."""
        row = " AND ".join(f"{name} = :{name}" for name in self.key)
        return statement(
            f"erase_{self.table}",
            f"""DELETE FROM {self.table} WHERE {row} AND {self.owner.value}
            RETURNING {self.key[0]}""",
        )

    @cached_property
    def delete_owned(self) -> Statement:
        """Deletes all rows of one owner, which are few."""
        return statement(
            f"erase_all_{self.table}",
            f"DELETE FROM {self.table} WHERE {self.owner.value} RETURNING {self.key[0]}",
        )

    @cached_property
    def cursor(self) -> tuple[str, ...]:
        """The columns of the key that differ among the rows of one owner."""
        return tuple(name for name in self.key if not re.search(rf"\b{name} = :", self.owner.value))

    @property
    def first(self) -> tuple[Value, ...]:
        """What comes before the cursors of all rows."""
        return tuple(_FIRST.get(name, "") for name in self.cursor)

    @cached_property
    def show(self) -> Statement:
        """The cursor and the columns of the user's rows after a cursor, in its order."""
        if not self.cursor:
            text = f"SELECT {', '.join(self.columns)} FROM {self.table} WHERE {self.owner.value}"
            return statement(f"show_personal_{self.table}", text)
        key = ", ".join(self.cursor)
        after = ", ".join(f":after_{name}" for name in self.cursor)
        return statement(
            f"show_personal_{self.table}",
            f"""SELECT {key}, {", ".join(self.columns)} FROM {self.table}
            WHERE {self.owner.value} AND ({key}) > ({after}) ORDER BY {key} LIMIT {_SHOWN}""",
        )
