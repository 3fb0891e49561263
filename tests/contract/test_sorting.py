"""The database of these tests sorts as the first lines of the run say.

Clarion's columns compare by code points, whatever the database does (`0002_engine_specific`). Tests
on a database that does so itself would not notice a column that was forgotten.
"""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from clarion.store.migrations.plan import apply_to_postgres, load
from clarion.store.opening import migrate
from tests.conftest import run_sql
from tests.contract.conftest import create_sorting
from tests.sorting import Sorting, chosen_sorting

# A column that was forgotten, and one as it should be.
COLUMNS = """CREATE TEMPORARY TABLE texts (forgotten text, declared text COLLATE "C");
INSERT INTO texts VALUES ('zzz', 'zzz')"""
PROVIDER = """SELECT datlocprovider::text || ' ' || datcollate
FROM pg_database WHERE datname = current_database()"""


@pytest.fixture
async def client(emptied_database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    client = await asyncpg.connect(emptied_database)
    await client.execute(COLUMNS)
    yield client
    await client.close()


async def test_the_database_sorts_as_the_run_announces(
    client: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    provider, _, locale = str(await client.fetchval(PROVIDER)).partition(" ")
    is_glibc = provider == "c" and locale == "en_US.UTF-8"
    assert is_glibc is (chosen_sorting() is Sorting.GLIBC)
    assert (provider == "i") is (chosen_sorting() is Sorting.ICU)


async def test_a_column_without_a_declared_order_sorts_otherwise(
    client: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    """With glibc, U+FFFF is not after all letters: a range that ends there would be empty."""
    sorts = chosen_sorting()
    found = await client.fetchrow(
        "SELECT declared < U&'\\FFFF', forgotten < U&'\\FFFF', declared < 'B', 'ana' < 'B'"
        " FROM texts"
    )
    assert found is not None
    assert tuple(found) == (True, sorts is not Sorting.GLIBC, False, sorts is not Sorting.BYTES)


TABLES_ALONE = [each for each in load("postgres") if each.name == "tables"]
USERS_WITH_ATTRIBUTES = r"""INSERT INTO users (app_id, id, language, timezone, status, tags,
attributes, preferences, created_at, updated_at, version) VALUES
('app', 'ana', 'en', 'UTC', 'active', '[]', '{"plan":"pro"}', '{}', 1, 1, 1),
('app', 'bo', 'en', 'UTC', 'active', '[]', '{"plan":"free"}', '{}', 1, 1, 1)"""
OTHER_COLLATIONS = """SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'
AND table_name NOT IN ('migrations', 'attributes_of_users')"""


async def test_texts_are_compared_by_code_points_whatever_the_database_does(
    postgres_url: str, database_name: str
) -> None:
    await create_sorting(postgres_url, database_name)
    url = postgres_url.removesuffix("postgres") + database_name
    client = await asyncpg.connect(url)
    try:
        await apply_to_postgres(client, TABLES_ALONE)
        await client.execute(USERS_WITH_ATTRIBUTES)
        sorts = chosen_sorting() is not Sorting.BYTES
        assert await client.fetchval("SELECT 'ana' < 'B'") is sorts
        assert len(await client.fetch(OTHER_COLLATIONS)) > 100
        await migrate(url)
        assert await client.fetch(OTHER_COLLATIONS) == []
        assert await client.fetchval("SELECT id < 'B' FROM users WHERE app_id = 'app'") is False
        # The view and the triggers that come after it are there.
        await client.execute("""UPDATE users SET attributes = '{"plan":"new"}' WHERE id = 'bo'""")
        plans = "SELECT user_id FROM user_attributes WHERE term = 'text.plan' AND value = 'new'"
        assert [tuple(row) for row in await client.fetch(plans)] == [("bo",)]
    finally:
        await client.close()
        await run_sql(postgres_url, f"DROP DATABASE {database_name} WITH (FORCE)")
