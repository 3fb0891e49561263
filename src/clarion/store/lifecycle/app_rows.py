"""Removes the rows of an app from all tables, a chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from clarion.store.engine import Engine
from clarion.store.lifecycle.user_rows import delete_owned
from clarion.store.statement import Statement, Unit, statement
from clarion.store.sweeps import count_changed, sweep
from clarion.store.table import GoesWith, Owner, Table

CHUNK = 500


def list_tables(tables: Sequence[Table[Any]]) -> list[Table[Any]]:
    """Return the tables whose rows are found by their app."""
    others = (Owner.INSTALLATION, Owner.NOTIFICATION)
    return [each for each in tables if each.owner not in others]


@cache
def find(table: Table[Any]) -> Statement:
    """Return the statement for some keys of rows of an app."""
    where = f"{table.where} AND " if table.where else ""
    return statement(
        f"find_{table.name}_of_app",
        f"""SELECT {", ".join(_key(table)) or "app_id"} FROM {table.name}
        WHERE {where}app_id = :app_id ORDER BY {", ".join(table.by_app)} LIMIT :limit""",
    )


@cache
def delete(table: Table[Any]) -> Statement:
    """Return the statement that deletes one of them."""
    key = "".join(f" AND {name} = :{name}" for name in _key(table))
    return statement(
        f"delete_{table.name}_of_app",
        f"DELETE FROM {table.name} WHERE app_id = :app_id{key} RETURNING 1",
    )


def _key(table: Table[Any]) -> tuple[str, ...]:
    return table.row_key[1:]


async def remove_some(engine: Engine, tables: Sequence[Table[Any]], app_id: str) -> int:
    """Remove at least a chunk of the rows of an app, unless less is left; return how much."""
    removed = 0
    for table in list_tables(tables):
        if removed < CHUNK:
            children = [each for each in tables if each.ends == GoesWith(table.name)]
            of_these = [each for each in children if each.owner is Owner.NOTIFICATION]
            removed += await _remove_rows(engine, table, of_these, app_id)
    return removed


async def _remove_rows(
    engine: Engine, table: Table[Any], children: Sequence[Table[Any]], app_id: str
) -> int:
    if not _key(table):  # one row
        return await count_changed(engine, app_id, delete(table).step(app_id=app_id))
    if not children:
        return await sweep(engine, find(table), delete(table), app_id=app_id, limit=CHUNK)
    found = await engine.fetch_in_background(find(table), app_id=app_id, limit=CHUNK)
    if not found:
        return 0
    rows = [dict(zip(_key(table), row, strict=True)) for row in sorted(found)]
    ids = [(row["id"],) for row in rows]
    steps = [delete_owned(each).many(ids) for each in children]
    own = delete(table).many([delete(table).bind(app_id=app_id, **row) for row in rows])
    await engine.write(Unit(app_id, (*steps, own)))
    return len(found)
