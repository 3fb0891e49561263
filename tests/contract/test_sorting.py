"""The database of these tests sorts as the first lines of the run say.

Clarion's columns compare by code points, whatever the database does (`0029_collation`). Tests on a
database that does so itself would not notice a column that was forgotten.
"""

from collections.abc import AsyncIterator

import asyncpg
import pytest

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
