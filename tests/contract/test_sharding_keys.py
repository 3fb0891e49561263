"""`docs/why/how-far-it-goes.md` has the sharding key of every table, and the columns exist."""

import re
from pathlib import Path

from clarion.store.engine import Engine
from clarion.store.opening import sqlite_path
from tests.contract.test_scoping import POSTGRES_COLUMNS, SQLITE_COLUMNS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "why" / "how-far-it-goes.md"
ROW = re.compile(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)*) ?\| .*\|$", re.MULTILINE)


def read_page() -> list[tuple[str, list[str]]]:
    section = PAGE.read_text().partition("## The sharding key of each table")[2]
    return [(table, re.findall(r"\w+", key)) for table, key in ROW.findall(section)]


async def test_every_table_has_a_row_and_its_key_is_of_its_columns(
    engine: Engine, database_url: str
) -> None:
    listed = SQLITE_COLUMNS if sqlite_path(database_url) else POSTGRES_COLUMNS
    schema: dict[str, set[str]] = {}
    for table, column in await engine.fetch(listed):
        schema.setdefault(table, set()).add(column)
    schema.pop("attributes_of_users", None)  # a view
    rows = read_page()
    assert sorted(table for table, _ in rows) == sorted(schema)
    assert {
        table: set(key) - schema[table] for table, key in rows if set(key) - schema[table]
    } == {}


async def test_what_belongs_to_apps_is_divided(engine: Engine, database_url: str) -> None:
    """A table of apps without a key would be a limit; the audit log is one chain."""
    listed = SQLITE_COLUMNS if sqlite_path(database_url) else POSTGRES_COLUMNS
    of_apps = {table for table, column in await engine.fetch(listed) if column == "app_id"}
    undivided = {table for table, key in read_page() if not key}
    assert undivided & of_apps == {"audit_entries"}
