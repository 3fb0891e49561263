"""Every table and column that could hold data about a user is declared, on both engines."""

import re

import pytest

from clarion.app.tables import PERSONAL, TABLES
from clarion.store.engine import Engine
from tests.planting import read_schema

# Names of columns that identify a user, or hold what one was sent.
SUSPICIOUS = re.compile(r"user|email|phone|name$|title|body|payload|content|audience|address")


async def test_every_table_is_declared_once(engine: Engine, database_url: str) -> None:
    names = [each.name for each in TABLES]
    assert sorted(await read_schema(engine, database_url)) == sorted(names)


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
