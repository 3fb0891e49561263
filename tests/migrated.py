"""A SQLite database in memory with all migrations: applied once a process, and copied."""

from functools import cache

import apsw

from clarion.store.migrations.plan import apply_to_sqlite


def copy_migrated() -> apsw.Connection:
    """Return a connection to a copy, which takes a fortieth of the time of the migrations."""
    connection = apsw.Connection(":memory:")
    with connection.backup("main", _migrate(), "main") as backup:
        backup.step()
    return connection


@cache
def _migrate() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    apply_to_sqlite(connection)
    return connection
