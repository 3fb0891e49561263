"""Every table and column is declared, and the declarations are true on both engines."""

import re

import pytest

from clarion.app.tables import PERSONAL, TABLES
from clarion.settings import load
from clarion.store.engine import Engine
from clarion.store.lifecycle import app_rows
from clarion.store.opening import sqlite_path
from clarion.store.statement import statement
from clarion.store.table import Ages, Expires, GoesWith, Pruned
from tests.planting import read_schema

SQLITE_KEYS = """SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND c.pk > 0"""
SQLITE_INDEXES = """SELECT t.tbl_name, t.name FROM sqlite_schema AS t
WHERE t.type = 'index' AND t.sql IS NOT NULL"""
POSTGRES_KEYS = """SELECT c.conrelid::regclass::text, a.attname::text FROM pg_constraint c
JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)
WHERE c.contype = 'p' AND c.connamespace = 'public'::regnamespace"""
POSTGRES_INDEXES = """SELECT tablename::text, indexname::text FROM pg_indexes
WHERE schemaname = 'public'"""
# Names of columns that identify a user, or hold what one was sent.
SUSPICIOUS = re.compile(r"user|email|phone|name$|title|body|payload|content|audience|address")


async def test_every_table_is_declared_once(engine: Engine, database_url: str) -> None:
    names = [each.name for each in TABLES]
    assert sorted(await read_schema(engine, database_url)) == sorted(names)


async def read_pairs(engine: Engine, query: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, name in await engine.fetch(statement("read_pairs", query)):
        found.setdefault(table, set()).add(name)
    return found


async def test_a_key_is_that_of_the_database(engine: Engine, database_url: str) -> None:
    keys = await read_pairs(engine, SQLITE_KEYS if sqlite_path(database_url) else POSTGRES_KEYS)
    assert keys == {each.name: set(each.key) for each in TABLES}


async def test_what_finds_rows_that_end_is_an_index(engine: Engine, database_url: str) -> None:
    query = SQLITE_INDEXES if sqlite_path(database_url) else POSTGRES_INDEXES
    indexes = await read_pairs(engine, query)
    # The key of these is in the order of time.
    by_key = {"notifications": "deliveries", "events": "events"}
    for each in TABLES:
        if isinstance(each.ends, (Expires, Ages, Pruned)) and each.name not in by_key:
            assert each.ends.found_by in indexes[each.name], each


def test_rows_go_with_those_of_a_table_and_are_kept_by_a_setting() -> None:
    names, days = {each.name for each in TABLES}, load({})
    for each in TABLES:
        if isinstance(each.ends, GoesWith):
            assert each.ends.table in names
        elif isinstance(each.ends, (Ages, Pruned)) and not isinstance(each.ends.kept, int):
            assert all(getattr(days, name) > 0 for name in each.ends.kept), each


async def test_the_fields_of_a_row_and_the_columns_that_are_named_exist(
    engine: Engine, database_url: str
) -> None:
    schema = await read_schema(engine, database_url)
    for each in TABLES:
        named = {*getattr(each, "names", ()), *each.answers, *each.shard}
        named |= {column for sealed in each.sealed.values() for column in sealed.fields}
        if each in app_rows.list_tables(TABLES):
            named |= set(each.by_app)
        assert named <= set(schema[each.name]), each


async def test_every_column_is_exported_or_omitted_for_a_reason(
    engine: Engine, database_url: str
) -> None:
    schema = await read_schema(engine, database_url)
    listed = {each.name: set(each.answers) for each in PERSONAL}
    assert listed == {each.name: set(schema[each.name]) for each in PERSONAL}


async def test_tables_without_personal_data_have_no_suspicious_columns(
    engine: Engine, database_url: str
) -> None:
    """Each of these was looked at: they are of apps and of those who operate Clarion."""
    schema = await read_schema(engine, database_url)
    found = {
        (table.name, column)
        for table in TABLES
        if table.impersonal
        for column in schema[table.name]
        if SUSPICIOUS.search(column)
    }
    assert found == {
        ("admin_sessions", "address"),
        ("admin_sessions", "user_agent"),
        ("administrators", "username"),
        ("apps", "name"),
        ("apps", "user_per_hour"),
        ("audit_entries", "address"),
        ("categories", "name"),
        ("categories", "title"),
        ("categories", "user_can_disable"),
        ("copied_tables", "name"),
        ("erasures", "user_hash"),
        ("migrations", "name"),
        ("providers", "name"),
        ("nodes", "name"),
        ("segments", "name"),
        ("templates", "body"),
        ("topic_messages", "payload"),
    }


@pytest.mark.parametrize("each", PERSONAL, ids=lambda each: each.name)
def test_a_row_by_which_others_are_found_is_erased_after_them(each: object) -> None:
    order = [known.name for known in PERSONAL]
    before = {
        "notifications": {"attempts", "deliveries"},
        "devices": {"messages", "subscriptions", "push_endpoints", "feedback"},
        "former_device_users": {"messages", "feedback"},
    }
    name = getattr(each, "name", "")
    assert all(order.index(child) < order.index(name) for child in before.get(name, set()))
