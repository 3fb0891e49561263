"""Each table of apps declares by which of its columns it could be divided among databases.

That each is declared, and has these columns, is checked in `test_tables.py`.
"""

from clarion.app.tables import TABLES
from clarion.store.engine import Engine
from clarion.store.opening import sqlite_path
from tests.contract.test_scoping import POSTGRES_COLUMNS, SQLITE_COLUMNS


async def test_what_belongs_to_apps_is_divided(engine: Engine, database_url: str) -> None:
    """A table of apps without a key would be a limit; the audit log is one chain."""
    listed = SQLITE_COLUMNS if sqlite_path(database_url) else POSTGRES_COLUMNS
    of_apps = {table for table, column in await engine.fetch(listed) if column == "app_id"}
    undivided = {each.name for each in TABLES if not each.shard}
    assert undivided & of_apps == {"audit_entries"}
