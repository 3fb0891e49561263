"""Each table declares by which of its columns it could be divided among databases."""

from clarion.app.tables import TABLES
from clarion.store.engine import Engine
from clarion.store.opening import sqlite_path
from clarion.store.statement import Statement
from tests.contract.test_scoping import POSTGRES_COLUMNS, SQLITE_COLUMNS


def choose(database_url: str) -> Statement:
    return SQLITE_COLUMNS if sqlite_path(database_url) else POSTGRES_COLUMNS


async def test_every_table_is_declared_and_its_key_is_of_its_columns(
    engine: Engine, database_url: str
) -> None:
    schema: dict[str, set[str]] = {}
    for table, column in await engine.fetch(choose(database_url)):
        schema.setdefault(table, set()).add(column)
    schema.pop("attributes_of_users", None)  # a view
    assert sorted(each.name for each in TABLES) == sorted(schema)
    assert {
        each.name: missing for each in TABLES if (missing := set(each.shard) - schema[each.name])
    } == {}


async def test_what_belongs_to_apps_is_divided(engine: Engine, database_url: str) -> None:
    """A table of apps without a key would be a limit; the audit log is one chain."""
    columns = await engine.fetch(choose(database_url))
    of_apps = {table for table, column in columns if column == "app_id"}
    undivided = {each.name for each in TABLES if not each.shard}
    assert undivided & of_apps == {"audit_entries"}
