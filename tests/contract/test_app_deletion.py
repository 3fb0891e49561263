"""What is left of a deleted app is removed: everything of it, and nothing of another."""

from collections.abc import Mapping

import pytest

from clarion.access.sql import Apps
from clarion.app.housekeeping import MARK_KEPT_MS, delete_apps
from clarion.app.tables import TABLES
from clarion.store.engine import Engine
from clarion.store.lifecycle.app_rows import CHUNK, list_tables
from clarion.store.opening import sqlite_path
from clarion.store.statement import Unit, Value, statement
from tests.factories import NOW, make_app, make_provider_key

ON_SQLITE = """SELECT m.name, c.name, c.type FROM sqlite_master m
JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"""
ON_POSTGRES = """SELECT table_name, column_name, upper(data_type) FROM information_schema.columns
JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"""
# Has no app of its own: its rows are those of the deliveries.
OF_NOTIFICATIONS = {"attempts"}
WITH_NOTIFICATIONS = {"deliveries"}
KEPT = {table.name for table in TABLES if table.kept_of_app}
# An app has one row.
ONE_EACH = {"erasure_keys"}
# Triggers read the attributes.
FIXED: dict[str, Value] = {"pool": "", "lane": 0, "attributes": "{}"}
Schema = Mapping[str, Mapping[str, str]]


@pytest.fixture
async def schema(engine: Engine, database_url: str) -> Schema:
    """The columns of each table as the database itself lists them, with their types."""
    source = ON_SQLITE if sqlite_path(database_url) else ON_POSTGRES
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in await engine.fetch(statement("schema", source)):
        found.setdefault(table, {})[column] = kind
    assert {"apps", "users", "jobs"} <= set(found)
    return found


def list_owned(schema: Schema) -> set[str]:
    return {table for table, columns in schema.items() if "app_id" in columns}


def test_every_table_of_apps_is_covered(schema: Schema) -> None:
    """A new table with an `app_id` is found by it, goes with a notification, or stays."""
    covered = {table.name for table in list_tables(TABLES)}
    assert covered | WITH_NOTIFICATIONS | KEPT == list_owned(schema)


async def fill(engine: Engine, schema: Schema, app_id: str, count: int = 1) -> None:
    """Add rows of an app to every table, with values that fit the types of the columns."""
    for table in list_owned(schema) | OF_NOTIFICATIONS:
        columns = schema[table]
        names, marks = ", ".join(columns), ", ".join(f":{name}" for name in columns)
        # A trigger has written some of them already.
        text = f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608
        insert = statement(f"fill_{table}", text)
        rows = [
            insert.bind(
                **{name: make_value(name, kind, app_id, n) for name, kind in columns.items()}
            )
            for n in range(1 if table in ONE_EACH else count)
        ]
        await engine.write(Unit("", (insert.many(rows),)))


def make_value(column: str, kind: str, app_id: str, number: int) -> Value:
    if column == "app_id":
        return app_id
    if column in FIXED:
        return FIXED[column]
    if kind in ("BIGINT", "INTEGER", "REAL", "DOUBLE PRECISION"):
        return int(app_id[-4:], 16) * 1_000 + number  # no two apps have the same
    text = f"{app_id}-{number}"
    return text.encode() if kind == "BYTEA" else text


async def count_rows(engine: Engine, schema: Schema, app_id: str) -> dict[str, int]:
    counts = {}
    for table in list_owned(schema):
        count = statement("count", f"SELECT COUNT(*) FROM {table} WHERE app_id = :app_id")  # noqa: S608
        ((counts[table],),) = await engine.fetch(count, app_id=app_id)
    of_notification = "SELECT COUNT(*) FROM attempts WHERE notification_id LIKE :start"
    rows = await engine.fetch(statement("attempts", of_notification), start=f"{app_id}-%")
    return {name: count for name, count in {**counts, "attempts": rows[0][0]}.items() if count}


async def add_apps(engine: Engine) -> tuple[str, str]:
    both = make_app(), make_app()
    for app in both:
        await Apps(engine).create(app, make_provider_key(app))
    return both[0].id, both[1].id


async def test_everything_of_the_app_is_removed_and_nothing_of_another(
    engine: Engine, schema: Schema
) -> None:
    apps = Apps(engine)
    gone, other = await add_apps(engine)
    for app_id in (gone, other):
        await fill(engine, schema, app_id)
    before = await count_rows(engine, schema, other)
    assert set(before) == list_owned(schema) | OF_NOTIFICATIONS
    assert await delete_apps(engine, Apps(engine), NOW) == 0, "no app is deleted yet"
    assert await apps.delete(gone, NOW)
    while await delete_apps(engine, Apps(engine), NOW):
        pass
    assert (await count_rows(engine, schema, gone)).keys() <= KEPT
    assert await count_rows(engine, schema, other) == before
    assert await apps.list_deleted() == (gone,)


async def test_a_step_removes_a_bounded_part_and_the_next_goes_on(
    engine: Engine, schema: Schema
) -> None:
    """As after a crash: another process has nothing but the store."""
    gone, _ = await add_apps(engine)
    await fill(engine, schema, gone, CHUNK + 1)
    total = sum((await count_rows(engine, schema, gone)).values())
    await Apps(engine).delete(gone, NOW)
    steps, left = 0, total
    while await delete_apps(engine, Apps(engine), NOW):
        steps += 1
        now_left = sum((await count_rows(engine, schema, gone)).values())
        # A table may begin a step that another has nearly filled; notifications have children.
        assert 0 < left - now_left <= 4 * CHUNK
        left = now_left
    assert steps > total / (4 * CHUNK)
    assert (await count_rows(engine, schema, gone)).keys() <= KEPT


async def test_what_is_written_late_is_removed_too_and_then_the_mark(
    engine: Engine, schema: Schema
) -> None:
    apps = Apps(engine)
    gone, _ = await add_apps(engine)
    await apps.delete(gone, NOW)
    while await delete_apps(engine, Apps(engine), NOW + MARK_KEPT_MS - 1):
        pass
    await fill(engine, schema, gone)
    assert await delete_apps(engine, Apps(engine), NOW + MARK_KEPT_MS) > 0
    assert await apps.list_deleted() == (gone,)
    while await delete_apps(engine, Apps(engine), NOW + MARK_KEPT_MS):
        pass
    assert (await count_rows(engine, schema, gone)).keys() <= KEPT
    assert await apps.list_deleted() == ()


async def test_a_living_app_is_left_alone(engine: Engine, schema: Schema) -> None:
    living, _ = await add_apps(engine)
    await fill(engine, schema, living)
    before = await count_rows(engine, schema, living)
    assert await delete_apps(engine, Apps(engine), NOW + 10 * MARK_KEPT_MS) == 0
    assert await count_rows(engine, schema, living) == before
