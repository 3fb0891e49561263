"""A segment costs what its rarest condition finds, however many other users there are.

The rows that are read are counted, as in `test_page_costs.py`, for the same matches in a small app
and in one of twenty times as many users.
"""

from collections.abc import Callable
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from clarion.people.segments.sql.segments import Segments
from clarion.store.engine import Engine
from clarion.store.opening import migrate, sqlite_path
from clarion.store.sqlite.reader import open_quick_reader, open_reader
from clarion.store.statement import Row, Statement, Unit, Value, statement
from tests.contract.conftest import nothing_left, opened
from tests.contract.test_page_costs import count_on_sqlite, fill
from tests.factories import NOW

SMALL, LARGE = 2_000, 40_000
MATCHES = 50
# Depths of indexes differ, rows read do not.
RATIO_LIMIT = 1.3
PAGE_LIMIT = 12_000


def rows_of(app_id: str, size: int) -> dict[str, list[Row]]:
    """Return an app in which half of the users are German, tagged, on the plan and active."""
    every = size // MATCHES
    users: list[Row] = []
    tags: list[Row] = []
    for n in range(size):
        rare, half = n % every == 0, n % 2 == 0
        attributes = f'{{"n":{n if rare else -n},"plan":"{"pro" if half else "free"}"}}'
        language = "de" if half else "en"
        seen = NOW + n if rare else NOW - 1 - n
        user_id = f"u{n:06}"
        given = (None, None, None, language, "UTC", "active", "[]", attributes, "{}")
        times = (NOW, NOW, 1, "{}", "{}", "{}", None, seen, None, None)
        users.append((app_id, user_id, *given, *times))
        tags += [(app_id, "rare", user_id)] * rare + [(app_id, "half", user_id)] * half
    return {"users": users, "user_tags": tags}


COUNTED = {
    "tag = 'rare'": MATCHES,
    "tag = 'rare' and tag = 'half' and language = 'de' and attributes.plan = 'pro'": MATCHES,
    "attributes.plan = 'pro' and language = 'de' and tag = 'rare'": MATCHES,
    "attributes.plan >= 'p' and attributes.n >= 0 and tag = 'half'": MATCHES,
    "last_seen_at >= '2026-01-01' and language in ('de', 'en')": MATCHES,
    "(tag = 'rare' or attributes.n > 0) and not tag = 'other' and language = 'de'": MATCHES,
    "tag = 'half' and (tag = 'rare' and language != 'en' or last_seen_at > '2026-01-02')": MATCHES,
    "tag = 'half' and tag = 'none'": 0,
}


# A statement, its values, and what opens the connection of SQLite that it is read by.
Read = tuple[Statement, dict[str, Value], Callable[[str], apsw.Connection]]


class RecordingEngine:
    """Notes each read that it passes on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.reads: list[Read] = []

    async def fetch(self, read: Statement, **values: Value) -> object:
        self.reads.append((read, values, open_quick_reader))
        return await self._engine.fetch(read, **values)

    async def fetch_slowly(self, read: Statement, **values: Value) -> object:
        self.reads.append((read, values, open_reader))
        return await self._engine.fetch_slowly(read, **values)


@pytest.fixture
async def database(database_url: str) -> str:
    await migrate(database_url)
    async with nothing_left(), opened(database_url) as engine:
        for app_id, size in (("small", SMALL), ("large", LARGE)):
            for table, rows in rows_of(app_id, size).items():
                await fill(engine, table, rows)
        await engine.write(Unit("", (statement("analyze", "ANALYZE").step(),)))
    return database_url


async def count_read(database: str, reads: list[Read]) -> int:
    """Return how many rows some reads have read from tables and indexes."""
    if path := sqlite_path(database):
        return sum(count_on_sqlite(path, *read)[1] for read in reads)
    connection = await asyncpg.connect(database)
    await connection.execute("SET jit = off")
    try:
        plans = [await explain(connection, read, read.bind(**values)) for read, values, _ in reads]
        return sum(map(rows_of_scans, plans))
    finally:
        await connection.close()


async def explain(connection: asyncpg.Connection, read: Statement, row: Row) -> dict[str, Any]:
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) {read.text}"
    plan: dict[str, Any] = msgspec.json.decode(await connection.fetchval(text, *row))[0]["Plan"]
    return plan


def rows_of_scans(node: dict[str, Any]) -> int:
    """Return the rows of the nodes that read by themselves: others would count them again."""
    children = sum(map(rows_of_scans, node.get("Plans", ())))
    if "Scan" not in node["Node Type"] or node["Node Type"] == "Bitmap Heap Scan":
        return children
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return children + int(rows * node["Actual Loops"])


async def test_a_count_costs_the_same_beside_many_more_users(database: str) -> None:
    costs: dict[str, list[int]] = {}
    async with opened(database) as engine:
        for text, expected in COUNTED.items():
            for app_id in ("small", "large"):
                recording = RecordingEngine(engine)
                found = await Segments(recording).count(app_id, text)  # type: ignore[arg-type]
                assert found == expected
                costs.setdefault(text, []).append(await count_read(database, recording.reads))
    dear = {text: pair for text, pair in costs.items() if pair[1] > pair[0] * RATIO_LIMIT}
    assert dear == {}, costs


PAGES = [
    "tag = 'half'",
    "tag != 'none'",
    "attributes.n <= 0",
    "tag in ('half', 'rare') and attributes.plan = 'free'",
    " or ".join(f"attributes.a{n} = 1 or tag = 't{n}'" for n in range(15)) + " or tag = 'half'",
    "not (" + " and ".join(f"tag = 't{n}'" for n in range(30)) + ")",
    "attributes.plan in (" + ", ".join(f"'p{n}'" for n in range(99)) + ", 'pro')",
]


async def test_a_page_costs_no_more_than_its_share(database: str) -> None:
    """Also if it is a range, has many conditions, or finds nobody."""
    costs: dict[str, int] = {}
    async with opened(database) as engine:
        for text in PAGES:
            recording = RecordingEngine(engine)
            segments = Segments(recording)  # type: ignore[arg-type]
            after = None
            for _ in range(3):  # the plan is made with the first
                recording.reads.clear()
                page = await segments.list_users("large", text, after=after, limit=500)
                after = page.next
                assert after is not None
            costs[text] = await count_read(database, recording.reads)
    assert {text: cost for text, cost in costs.items() if cost > PAGE_LIMIT} == {}
