"""Deletes the rows of a table that have expired or are old, a chunk at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from clarion.store.engine import Engine
from clarion.store.statement import Statement, statement
from clarion.store.sweeps import sweep
from clarion.store.table import Ages, Expires, Table

DAY_MS = 24 * 3600 * 1000
# Takes the time, deletes at most a chunk, and returns how many rows that were.
Prune = Callable[[int], Awaitable[int]]


def list_prunes(
    engine: Engine, tables: Sequence[Table[Any]], settings: object, limit: int
) -> Iterator[tuple[Table[Any], Prune]]:
    """Yield the tables whose rows expire, each with the step that deletes some."""
    for table in tables:
        match table.ends:
            case Expires():
                yield table, partial(_prune, engine, table, limit, 0)
            case Ages(kept=int(kept_ms)):
                yield table, partial(_prune, engine, table, limit, kept_ms)
            case Ages(kept=tuple(names)):
                days = max(int(getattr(settings, name)) for name in names)
                yield table, partial(_prune, engine, table, limit, days * DAY_MS)
            case _:  # by a step of its owner, with rows of another table, or not at all
                pass


async def _prune(engine: Engine, table: Table[Any], limit: int, kept_ms: int, now: int) -> int:
    return await prune(engine, table, now - kept_ms, limit)


async def prune(engine: Engine, table: Table[Any], before: int, limit: int) -> int:
    """Delete rows that ended at a time or before, at most `limit`; return how many."""
    return await sweep(engine, find(table), delete(table), before=before, limit=limit)


@cache
def find(table: Table[Any]) -> Statement:
    """Return the statement for the keys of some rows that have ended, the oldest first."""
    column = _column(table)
    return statement(
        f"find_ended_{table.name}",
        f"""SELECT {", ".join(table.row_key)} FROM {table.name} WHERE {_condition(table)}
        ORDER BY {column} LIMIT :limit""",
    )


@cache
def delete(table: Table[Any]) -> Statement:
    """Return the statement that deletes one of them, if it has still ended."""
    key = " AND ".join(f"{name} = :{name}" for name in table.row_key)
    return statement(
        f"delete_ended_{table.name}",
        f"DELETE FROM {table.name} WHERE {key} AND {_condition(table)} RETURNING 1",
    )


def _column(table: Table[Any]) -> str:
    if not isinstance(table.ends, (Expires, Ages)):
        raise TypeError(f"the rows of {table.name} do not expire")
    return table.ends.column


def _condition(table: Table[Any]) -> str:
    where = table.ends.where if isinstance(table.ends, Ages) else ""
    return f"{_column(table)} <= :before" + (f" AND {where}" if where else "")
