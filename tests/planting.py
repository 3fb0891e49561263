"""Plants marked text of a user in every table, and looks for it everywhere."""

import uuid
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from clarion.app.tables import PERSONAL
from clarion.store.engine import Engine
from clarion.store.opening import sqlite_path
from clarion.store.statement import Statement, Unit, Value, statement
from clarion.store.table import Shape
from tests.factories import NOW

SQLITE = """SELECT t.name, c.name, c.type FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"""
POSTGRES = """SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'"""
# Of these, a user has one at most.
SINGLE = {"users", "inboxes", "inactive_users"}


async def read_schema(engine: Engine, url: str) -> dict[str, dict[str, str]]:
    """Return the tables with their columns, and the type of each."""
    query = SQLITE if sqlite_path(url) else POSTGRES
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in await engine.fetch(statement("read_schema", query)):
        tables.setdefault(table, {})[column] = kind.lower()
    return tables


async def plant(
    engine: Engine,
    url: str,
    app_id: str,
    user_id: str,
    mark: str,
    count: int = 3,
    tables: Collection[str] = (),
) -> None:
    """Add rows about a user to every table of the inventory, marked in every column of text."""
    schema = await read_schema(engine, url)
    for table in tables or [each.name for each in PERSONAL]:
        numbers = range(1 if table in SINGLE else count)
        rows = [make_row(table, schema[table], app_id, user_id, mark, n) for n in numbers]
        add = adding(table, schema[table])
        await engine.write(Unit("", (add.many([add.bind(**row) for row in rows]),)))


def adding(table: str, columns: Iterable[str]) -> Statement:
    names = list(columns)
    marks = ", ".join(f":{name}" for name in names)
    # A trigger has written some of them already.
    text = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608
    return statement(f"plant_{table}", text)


def make_row(
    table: str, columns: dict[str, str], app_id: str, user_id: str, mark: str, n: int
) -> dict[str, Value]:
    row = {name: make_value(table, name, kind, mark, n) for name, kind in columns.items()}
    known: dict[str, Value] = {
        "app_id": app_id,
        "user_id": user_id,
        "device_id": f"device-{mark}-{n}",
        "notification_id": f"notification-{mark}-{n}",
        "event_id": f"event-{mark}-{n}",
    }
    row |= {name: value for name, value in known.items() if name in row}
    return row | own_values(table, user_id, mark, n)


def own_values(table: str, user_id: str, mark: str, n: int) -> dict[str, Value]:
    """Return what the rows of a table need so that they belong together."""
    device, token = f"device-{mark}-{n}", f"token-{mark}-{n}".encode()
    known: dict[str, dict[str, Value]] = {
        "users": {"id": user_id, "deleted_at": None},
        "devices": {"id": device, "token_hash": token},
        "feedback": {"token_hash": token},
        "former_device_users": {"device_id": f"former-{mark}-{n}", "since": 0, "until": NOW * 1000},
        # The first of them to a device that has another user now.
        "messages": {
            "device_id": device if n else f"former-{mark}-0",
            "sequence": NOW * 1000 + (5 if n else -5),
            "notification_id": None,
        },
        "notifications": {
            "id": f"notification-{mark}-{n}",
            "content": msgspec.json.encode({"data": {"text": mark}}).decode(),
            "folded_into": None,
            "ended_deliveries": msgspec.json.encode(
                [["in_app", "dropped", "no_template", mark]]
            ).decode(),
        },
        "dedupes": {"id": f"{user_id}\n{mark}\n{n}"},
        "limit_counts": {"id": f"{user_id}\n{mark}\n{n}"},
        "events": make_event_values(user_id, mark, n),
    }
    return known.get(table, {})


def make_event_values(user_id: str, mark: str, n: int) -> dict[str, Value]:
    """Return events to the user alone; the third is one by the user to somebody else."""
    is_actor = n == 2
    content = {"data": {"text": mark}} if not is_actor else {"data": {}}
    actor = {"actor": {"id": user_id, "name": f"Name {mark}"}} if is_actor else {}
    audience = {"kind": "user", "ids": ["somebody-else" if is_actor else user_id]}
    values: dict[str, Value] = {
        "id": f"event-{mark}-{n}" if not is_actor else f"event-{uuid.uuid4().hex}",
        "audience": msgspec.json.encode(audience).decode(),
        "content": msgspec.json.encode(content | actor).decode(),
        "priority": 1,
        "status": "completed",
    }
    return values | ({"dedupe_key": None, "type": "comment"} if is_actor else {})


JSON = {
    (table.name, column)
    for table in PERSONAL
    for column, shape in table.shown.items()
    if shape is Shape.JSON
}


def make_value(table: str, column: str, kind: str, mark: str, n: int) -> Value:
    if (table, column) in JSON:
        return msgspec.json.encode({"text": f"{mark}-{table}-{column}-{n}"}).decode()
    if kind in {"bytea", "blob"}:
        return f"{mark}-{table}-{column}-{n}".encode()
    if kind == "text":
        return f"{mark}-{table}-{column}-{n}"
    return n + 1


async def find_in_tables(engine: Engine, url: str, mark: str) -> list[str]:
    """Return the tables and columns that hold the mark anywhere."""
    found = []
    for table, columns in (await read_schema(engine, url)).items():
        names = list(columns)
        text = f"SELECT {', '.join(names)} FROM {table}"  # noqa: S608
        query = statement(f"search_{table}", text)
        for row in await engine.fetch(query):
            found += [
                f"{table}.{name}"
                for name, value in zip(names, row, strict=True)
                if mark.encode() in as_bytes(value)
            ]
    return found


def as_bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()


def find_in_files(path: str | Path, mark: str) -> list[str]:
    """Return the files of a SQLite database that hold the mark."""
    files = sorted(Path(path).parent.glob(f"{Path(path).name}*"))
    return [each.name for each in files if mark.encode() in each.read_bytes()]
