"""What a backup of PostgreSQL relies on: which tables are Clarion's, and that none is left out."""

import asyncpg

from clarion.store.backups.postgres import list_names
from clarion.store.migrations.plan import load
from clarion.store.opening import migrate


async def test_both_engines_have_the_same_tables(postgres_database: str) -> None:
    await migrate(postgres_database)
    connection = await asyncpg.connect(postgres_database)
    try:
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    finally:
        await connection.close()
    expected = list_names(each.version for each in load("postgres"))
    assert {name for (name,) in rows} - {"migrations"} == expected
    assert len(expected) > 40
