"""Fills every table of a SQLite database with values of all kinds, and reads every table."""

import apsw
import asyncpg

from clarion.store.copying.tables import CopiedTable
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import Row, Value

# What a text, a number and bytes can be: nothing, other alphabets, the ends of the ranges.
TEXTS = ("", "ü ☃ 🎺", "line\nline", "'\"\\", "x" * 5_000)
NUMBERS = (0, -1, 2**31 - 1, -(2**31))
LONG_NUMBERS = (0, -1, 2**63 - 1, -(2**63))
BYTES = (b"", b"\x00\xff" * 20, bytes(range(256)))
REALS = (0.0, -1.5, 1e300, 0.1)
INSTALLATION = (
    "INSERT INTO installation (id, slot, seal, created_at) VALUES ('here', 1, X'02AABBCCDD', 7)"
)
# Triggers read it.
JSON_COLUMNS = {"attributes"}


def fill_sqlite(path: str, tables: list[CopiedTable] | None, count: int) -> list[CopiedTable]:
    """Make a database with rows in every table; return the tables."""
    connection = open_connection(path)
    apply_to_sqlite(connection)
    connection.execute(INSTALLATION)
    # What the triggers would write is written as rows of their own.
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
        connection.execute(f"DROP TRIGGER {name}")
    for table in tables or []:
        kinds = dict(
            connection.execute("SELECT name, type FROM pragma_table_info(?)", (table.name,))
        )
        nullable = {
            name
            for (name,) in connection.execute(
                'SELECT name FROM pragma_table_info(?) WHERE "notnull" = 0 AND pk = 0',
                (table.name,),
            )
        }
        names, marks = ", ".join(table.columns), ", ".join("?" for _ in table.columns)
        rows = [
            tuple(
                make_value(table, column, str(kinds[column]), n, is_nullable=column in nullable)
                for column in table.columns
            )
            for n in range(count)
        ]
        text = f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - of the schema
        with connection:
            connection.executemany(text, rows)
    connection.close()
    return tables or []


def make_value(table: CopiedTable, column: str, kind: str, n: int, *, is_nullable: bool) -> Value:
    """Return the value of a column in the row of a number: unique in keys, else of all kinds."""
    place = n + len(column)
    if column in JSON_COLUMNS:
        return '{"plan":"gold","age":7}' if n % 2 else "{}"
    if is_nullable and place % 3 == 0:
        return None
    # A column of an index can be unique, and is short on PostgreSQL.
    if kind == "TEXT":
        return f"{column} {n}" if n % 2 or column in table.key else f"{TEXTS[n % 4]} {n}"
    if kind == "BYTEA":
        return BYTES[n % len(BYTES)] + b"%d" % n
    if kind == "BIGINT":
        is_unique = column in table.key or column == "sequence"
        return n if is_unique or n % 2 else LONG_NUMBERS[n % 4]
    if kind == "INTEGER":
        return n if column in table.key or n % 2 else NUMBERS[n % 4]
    return REALS[n % len(REALS)]


def read_sqlite(path: str, table: CopiedTable) -> set[Row]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        columns = ", ".join(table.columns)
        return set(connection.execute(f"SELECT {columns} FROM {table.name}"))  # noqa: S608 - likewise
    finally:
        connection.close()


async def read_postgres(connection: asyncpg.Connection, table: CopiedTable) -> set[Row]:
    columns = ", ".join(table.columns)
    rows = await connection.fetch(f"SELECT {columns} FROM {table.name}")  # noqa: S608 - likewise
    return set(map(tuple, rows))
