"""By what the database of the contract tests sorts texts: chosen once in a run, and announced.

Clarion must not depend on it, and plain `createdb` gives on most machines what a byte order hides:
glibc sorts U+FFFF before all letters. ICU does not, and is only the next best.
"""

import asyncio
import os
from enum import StrEnum

import asyncpg

SORTING = "CLARION_TEST_SORTING"


class Sorting(StrEnum):
    GLIBC = "en_US.UTF-8 of the C library"
    ICU = "en-US of ICU"
    BYTES = "bytes: this machine has neither the locale en_US.UTF-8 nor ICU"

    @property
    def options(self) -> str:
        """What `CREATE DATABASE` gets."""
        match self:
            case Sorting.GLIBC:
                return "TEMPLATE template0 LOCALE 'en_US.UTF-8'"
            case Sorting.ICU:
                return "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
            case Sorting.BYTES:
                return ""


# Some C libraries know the name, but sort by bytes.
_COLLATIONS = {
    Sorting.GLIBC: "provider = libc, locale = 'en_US.UTF-8'",
    Sorting.ICU: "provider = icu, locale = 'en-US'",
}


def choose_sorting(server_url: str) -> None:
    """Choose by what this server can, for the workers of this run as well."""
    os.environ[SORTING] = asyncio.run(_find_sorting(server_url)).name


def chosen_sorting() -> Sorting:
    return Sorting[os.environ[SORTING]]


def describe_sorting() -> list[str]:
    """Return the line that announces it; none if the run has no PostgreSQL."""
    return [f"contract tests: sort by {chosen_sorting()}"] if SORTING in os.environ else []


async def _find_sorting(server_url: str) -> Sorting:
    client = await asyncpg.connect(server_url)
    try:
        for sorting, collation in _COLLATIONS.items():
            if await _sorts_as_people_do(client, collation):
                return sorting
        return Sorting.BYTES
    finally:
        await client.close()


async def _sorts_as_people_do(client: "asyncpg.Connection[asyncpg.Record]", options: str) -> bool:
    attempt = client.transaction()
    await attempt.start()
    try:
        await client.execute(f"CREATE COLLATION of_people ({options})")
        return bool(await client.fetchval("SELECT 'ana' < 'B' COLLATE of_people"))
    except asyncpg.PostgresError:
        return False
    finally:
        await attempt.rollback()
