"""Prints every statement that the program has, by name, as JSON.

Run as a process of its own: statements of tests are not among them.
"""

import gc
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator

import clarion
from clarion.app.tables import PERSONAL, TABLES
from clarion.people.segments.filters import list_conditions
from clarion.people.segments.parser import parse
from clarion.people.segments.sql import queries
from clarion.store.lifecycle import app_rows, retention, user_rows
from clarion.store.statement import Statement
from clarion.store.table import Ages, Expires, Owner

# Programs, which would run.
_PROGRAMS = ("__main__", "child", "apprise_process")
# Together they use every form that a filter can have.
_FILTERS = (
    "tag = 'planted' and language = 'de' and timezone != 'UTC'",
    "tag in ('planted', 'b') or not attributes.planted = 'planted'",
    "created_at > '2026-01-01' and last_seen_at <= '2026-02-01' and attributes.planted >= 18",
    "status = 'active'",
)


def import_all() -> None:
    for module in pkgutil.walk_packages(clarion.__path__, "clarion."):
        if not module.name.endswith(_PROGRAMS):
            importlib.import_module(module.name)


def list_of_tables() -> Iterator[Statement]:
    """Yield the statements that are made from the declarations of tables."""
    of_users = (user_rows.find, user_rows.delete, user_rows.delete_owned, user_rows.show)
    for table in PERSONAL:
        if table.owner is not Owner.SEVERAL_USERS:
            yield from (make(table) for make in of_users)
    for table in app_rows.list_tables(TABLES):
        yield from (app_rows.find(table), app_rows.delete(table))
    ending = (each for each in TABLES if isinstance(each.ends, (Expires, Ages)))
    for table in ending:
        yield from (retention.find(table), retention.delete(table))


def made_when_needed() -> Iterator[Statement]:
    """Yield statements that are made from tables of the program, or from what an app has sent."""
    yield from list_of_tables()
    for text in _FILTERS:
        of = parse(text)
        conditions = tuple(list_conditions(of))
        for given in (conditions, None):
            for make in (queries.count_users, queries.list_users):
                yield make(queries.Parameters(), of, given)
        if conditions:
            yield queries.count_each(queries.Parameters(), conditions)


if __name__ == "__main__":
    import_all()
    found = [each for each in gc.get_objects() if isinstance(each, Statement)]
    made = list(made_when_needed())
    named = {each.name: each.text for each in found}
    numbered = {f"{each.name} #{number}": each.text for number, each in enumerate(made)}
    json.dump({**named, **numbered}, sys.stdout)
