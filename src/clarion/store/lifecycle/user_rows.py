"""The statements that find, delete and show the rows of one user in a table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from clarion.store.engine import Engine
from clarion.store.statement import Statement, Step, Value, statement
from clarion.store.table import Table

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


class ErasedUser(NamedTuple):
    """A user who is erased at this time."""

    app_id: str
    user_id: str
    now: int

    @property
    def key(self) -> dict[str, str]:
        return {"app_id": self.app_id, "user_id": self.user_id}


class WriteChunk(Protocol):
    """Commits a part of an erasure, unless the erasure has ended."""

    async def __call__(
        self,
        steps: Mapping[str, Step],
        changes: Sequence[Step] = (),
        within: Mapping[str, int] = MappingProxyType({}),
    ) -> int:
        """Return how many rows the steps removed; they are counted by the names of `steps`.

        `within` counts what is stored within these rows, and is removed with them.
        """


# How a slice removes what only it can find.
EraseUser = Callable[[Engine, ErasedUser, WriteChunk], Awaitable[None]]


@cache
def find(table: Table[Any]) -> Statement:
    """Return the statement for some keys of rows of a user, in no order."""
    key = ", ".join(table.key)
    return statement(
        f"find_personal_{table.name}",
        f"SELECT {key} FROM {table.name} WHERE {table.owner.value} LIMIT {CHUNK}",
    )


@cache
def delete(table: Table[Any]) -> Statement:
    """Return the statement that deletes a row that was found, if it is still the user's."""
    row = " AND ".join(f"{name} = :{name}" for name in table.key)
    return statement(
        f"erase_{table.name}",
        f"""DELETE FROM {table.name} WHERE {row} AND {table.owner.value}
        RETURNING {table.key[0]}""",
    )


@cache
def delete_owned(table: Table[Any]) -> Statement:
    """Return the statement that deletes all rows of one owner, which are few."""
    return statement(
        f"erase_all_{table.name}",
        f"DELETE FROM {table.name} WHERE {table.owner.value} RETURNING {table.key[0]}",
    )


@cache
def show(table: Table[Any]) -> Statement:
    """Return the statement for the cursor and the shown columns of rows after a cursor."""
    shown = ", ".join(table.shown)
    if not table.cursor:
        text = f"SELECT {shown} FROM {table.name} WHERE {table.owner.value}"
        return statement(f"show_personal_{table.name}", text)
    key = ", ".join(table.cursor)
    after = ", ".join(f":after_{name}" for name in table.cursor)
    return statement(
        f"show_personal_{table.name}",
        f"""SELECT {key}, {shown} FROM {table.name}
        WHERE {table.owner.value} AND ({key}) > ({after}) ORDER BY {key} LIMIT {_SHOWN}""",
    )


def find_first(table: Table[Any]) -> tuple[Value, ...]:
    """Return a cursor before those of all rows."""
    return tuple(_FIRST.get(name, "") for name in table.cursor)
