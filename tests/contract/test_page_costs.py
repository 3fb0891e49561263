"""A page costs what it shows, however much its filter leaves out.

`test_query_plans.py` checks that an index is used. Here a statement finds four rows among 20,000
of the same user, app, topic or digest that do not match, and the rows that it reads are counted.
"""

from collections.abc import Callable
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from clarion.store.engine import Engine
from clarion.store.opening import migrate, sqlite_path
from clarion.store.sqlite.reader import open_quick_reader
from clarion.store.statement import Row, Statement, Unit, Value, statement
from tests.contract.conftest import nothing_left, opened
from tests.contract.test_query_plans import STATEMENTS, literal
from tests.factories import NOW

NOISE = 20_000
# Of the notifications those with an odd number are unread.
MATCHING = {1, 5_000, 10_001, 15_000}
FOUND, FOUND_UNREAD = 4, 2
# SQLite takes some six instructions for a row that it passes over.
STEPS_PER_ROW = 5
ROWS_LIMIT = 2_000


def notification(n: int) -> tuple[Value, ...]:
    """Return a notification of one user: read and unread, and a few of another category."""
    category = "security" if n in MATCHING else "social"
    said = ("event", "TYPE", category, 1, None, "text", "{}", 1, 1, None, n + 1)
    ends = (None if n % 2 else NOW, None, None, NOW, None, None, None)
    return ("app", "ana", f"n-{n:06}", *said, *ends)


def topic(n: int) -> tuple[Value, ...]:
    return ("app", f"topic-{n:06}", int(n in MATCHING), -1, 0, NOW, None, 0)


def user(n: int) -> tuple[Value, ...]:
    status, language = ("active", "de") if n in MATCHING else ("inactive", "en")
    given = (None, None, None, language, "UTC", status, "[]", "{}", "{}")
    moment = NOW + (n in MATCHING)
    groups, key = ("{}", "{}", "{}"), f"user-{n:06}@example.com"
    return ("app", f"user-{n:06}", *given, moment, NOW, 1, *groups, None, moment, None, key)


def other_user(n: int) -> tuple[Value, ...]:
    """Return an active user without an address, of another language and time."""
    given = (None, None, None, "en", "UTC", "active", "[]", "{}", "{}")
    return ("app", f"z-{n:06}", *given, NOW, NOW, 1, "{}", "{}", "{}", *[None] * 4)


def event(n: int) -> tuple[Value, ...]:
    status = "failed" if n in MATCHING else "completed"
    said = ("TYPE", "{}", "{}", 1, None, status, 0, None, 0, 1, None, None)
    return ("app", f"event-{n:06}", *said, NOW, NOW, None)


def delivery(n: int) -> tuple[Value, ...]:
    digest = "mine" if n in MATCHING else "other"
    decided = ("collected", "reason", "rule", None, "[]", digest, 1, 1)
    return (f"n-{n:06}", "stub", "app", "ana", *decided, *[None] * 6, NOW)


ROWS: dict[str, Callable[[int], Row]] = {
    "notifications": notification,
    "topics": topic,
    "users": user,
    "user_tags": lambda n: ("app", "vip" if n in MATCHING else "new", f"user-{n:06}"),
    "follows": lambda n: ("app", "news", f"user-{n:06}", NOW),
    "events": event,
    "deliveries": delivery,
    # Of one metric, and a few of an hour that is asked for.
    "analytics": lambda n: (
        *("app", "deliveries", "hour", NOW + (0 if n in MATCHING else n + 1)),
        *("TYPE", "push", "", f"{n}", 1),
    ),
}
INBOX: dict[str, Value] = {"app_id": "app", "user_id": "ana", "before_id": "z", "limit": 100}
# Each with how many rows it finds.
PAGES: dict[str, tuple[dict[str, Value], int]] = {
    "show_inbox_of_category": ({**INBOX, "category": "security"}, FOUND),
    "show_unread_of_category": ({**INBOX, "category": "security"}, FOUND_UNREAD),
    "show_inbox": (INBOX, 100),
    "show_unread": (INBOX, 100),
    "select_inbox_changes": (
        {"app_id": "app", "user_id": "ana", "since": NOISE - FOUND, "limit": 100},
        FOUND,
    ),
    "list_topics": (
        {"app_id": "app", "is_broadcast_channel": 1, "after": "", "limit": 100},
        FOUND,
    ),
    "list_active_user_ids": ({"app_id": "app", "after": "", "limit": 100}, 100),
    "list_users": ({"app_id": "app", "after": "", "limit": 100}, 100),
    "list_users_by_status": (
        {"app_id": "app", "status": "inactive", "after": "user-000500", "limit": 100},
        100,
    ),
    "list_users_by_language": (
        {"app_id": "app", "language": "de", "after": "", "limit": 100},
        FOUND,
    ),
    "list_users_by_tag": ({"app_id": "app", "tag": "vip", "after": "", "limit": 100}, FOUND),
    "list_users_by_creation": (
        {"app_id": "app", "since": NOW + 1, "before": NOW + 2, "id": "", "limit": 100},
        FOUND,
    ),
    "list_users_by_last_seen": (
        {"app_id": "app", "since": NOW + 1, "before": NOW + 2, "id": "", "limit": 100},
        FOUND,
    ),
    "find_user_by_email": (
        {"app_id": "app", "email_key": "user-000007@example.com", "limit": 100},
        1,
    ),
    "list_followers": ({"app_id": "app", "topic": "news", "after": "", "limit": 100}, 100),
    "list_events_by_status": (
        {"app_id": "app", "status": "failed", "before": "z", "limit": 100},
        FOUND,
    ),
    "read_analytics": (
        {
            "app_id": "app",
            "metric": "deliveries",
            "step": "hour",
            "limit": 100,
            "since": NOW,
            "until": NOW + 1,
            "type": "",
            "channel": "",
            "platform": "",
            "has_type": 1,
            "has_channel": 1,
            "has_platform": 1,
            "has_label": 1,
        },
        FOUND,
    ),
    "count_new_decisions": ({"first_id": "n-005000", "last_id": "n-005004"}, 1),
    "count_new_notifications": ({"first_id": "n-005000", "last_id": "n-005004"}, 1),
    "list_collected_deliveries": (
        {"app_id": "app", "user_id": "ana", "digest": "mine", "limit": 100},
        FOUND,
    ),
}

ASKED = {name: (STATEMENTS[name], values) for name, (values, _) in PAGES.items()}


@pytest.fixture
async def database(database_url: str) -> str:
    await migrate(database_url)
    async with nothing_left(), opened(database_url) as engine:
        for table, make_row in ROWS.items():
            await fill(engine, table, [make_row(n) for n in range(NOISE)])
        # Active users who follow nothing: they must not be read for the followers.
        others = [other_user(n) for n in range(NOISE)]
        await fill(engine, "users", others)
    return database_url


async def analyze(database: str) -> None:
    async with opened(database) as engine:
        await engine.write(Unit("", (statement("analyze", "ANALYZE").step(),)))


async def fill(engine: Engine, table: str, rows: list[Row]) -> None:
    marks = ", ".join(f":c{n}" for n in range(len(rows[0])))
    insert = statement(f"fill_{table}", f"INSERT INTO {table} VALUES ({marks})")  # noqa: S608
    await engine.write(Unit("", (insert.many(rows),)))


def count_on_sqlite(
    path: str,
    each: Statement,
    values: dict[str, Value],
    opening: Callable[[str], apsw.Connection] = open_quick_reader,
) -> tuple[int, int]:
    """Return the rows that were found, and how many were read, by the instructions that ran."""
    connection = opening(path)
    ran = 0

    def count() -> bool:
        nonlocal ran
        ran += 1
        return False

    connection.set_progress_handler(count, STEPS_PER_ROW)
    found = connection.execute(each.text, each.bind(**values)).fetchall()
    connection.close()
    return len(found), ran


async def count_on_postgres(
    connection: asyncpg.Connection, each: Statement, values: dict[str, Value]
) -> tuple[int, int]:
    """Return the rows that were found, and the rows that all parts of the plan have read."""
    await connection.execute(f"PREPARE counted AS {each.text}")
    given = ", ".join(literal(values[name]) for name in each.names)
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE counted({given})"
    plan = msgspec.json.decode(await connection.fetchval(text))[0]["Plan"]
    await connection.execute("DEALLOCATE counted")
    return int(plan["Actual Rows"]), rows_read(plan)


def rows_read(node: dict[str, Any]) -> int:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return int(own) + sum(map(rows_read, node.get("Plans", ())))


async def test_a_page_reads_few_rows_beside_those_it_shows(database: str) -> None:
    path = sqlite_path(database)
    if path:
        # A new database has no statistics, and is used all the same.
        check({name: count_on_sqlite(path, *asked) for name, asked in ASKED.items()})
    await analyze(database)
    if path:
        check({name: count_on_sqlite(path, *asked) for name, asked in ASKED.items()})
        return
    connection = await asyncpg.connect(database)
    check({name: await count_on_postgres(connection, *asked) for name, asked in ASKED.items()})
    await connection.close()


def check(counts: dict[str, tuple[int, int]]) -> None:
    assert {name: found for name, (found, _) in counts.items()} == {
        name: found for name, (_, found) in PAGES.items()
    }
    assert {name: read for name, (_, read) in counts.items() if read > ROWS_LIMIT} == {}
