"""Chooses the engine from a database URL. The driver of PostgreSQL is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import apsw

from clarion.store.migrations.plan import OnPostponed, log_postponed
from clarion.store.postgres.address import name_host
from clarion.store.slots import USUAL, SlowReadLimits
from clarion.store.sqlite import engine as sqlite
from clarion.store.sqlite.moved import refuse_moved
from clarion.store.statement import Row, Statement, Value
from clarion.system.child_process import Child

if TYPE_CHECKING:
    from clarion.store.postgres.engine import OnConnect, PostgresEngine

SQLITE_PREFIX = "sqlite:///"


def sqlite_path(url: str) -> str | None:
    """Return the path of a SQLite URL; None for PostgreSQL."""
    return url.removeprefix(SQLITE_PREFIX) if url.startswith(SQLITE_PREFIX) else None


def describe_url(url: str) -> str:
    """Return how a person calls a database: without its user and password."""
    if path := sqlite_path(url):
        return f"SQLite {path}"
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host = name_host(url)
    name = parts.path.removeprefix("/") or query.get("dbname", [""])[0]
    return f"PostgreSQL {name} at {host}" if name else f"PostgreSQL at {host}"


async def migrate(url: str, on_postponed: OnPostponed = log_postponed) -> list[str]:
    """Apply the missing migrations and return their titles.

    `on_postponed` is called for an `after` step that waits for nodes of earlier releases.
    `StartError` if there is no SQLite database because it was copied to PostgreSQL.
    """
    if path := sqlite_path(url):
        refuse_moved(Path(path))
        return sqlite.migrate(path)
    from clarion.store.postgres import engine as postgres  # noqa: PLC0415 - only with PostgreSQL

    return await postgres.migrate(url, on_postponed)


async def fetch_once(url: str, statement: Statement, **values: Value) -> Sequence[Row]:
    """Return the rows of one read of a database whose migrations are applied."""
    row = statement.bind(**values)
    if path := sqlite_path(url):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute(statement.text, row).fetchall()
        finally:
            connection.close()
    from clarion.store.postgres import engine as postgres  # noqa: PLC0415 - only with PostgreSQL

    async with postgres.connected(url) as client:
        return list(map(tuple, await client.fetch(statement.text, *row)))


async def open_engine(
    url: str,
    *,
    waiting_limit: int,
    batch_limit: int,
    on_broken: Callable[[str], None],
    slow_reads: SlowReadLimits = USUAL,
    on_connect: OnConnect | None = None,
    writer: Child | None = None,
) -> sqlite.SqliteEngine | PostgresEngine:
    """Open a database whose migrations are applied.

    SQLite calls `on_broken` if its writer ends, PostgreSQL `on_connect` when its writer connects.
    `writer` is the process for SQLite, if one was started before.
    """
    path = sqlite_path(url)
    if path:
        return await sqlite.SqliteEngine.open(
            path,
            waiting_limit=waiting_limit,
            batch_limit=batch_limit,
            on_broken=on_broken,
            slow_reads=slow_reads,
            writer=writer,
        )
    from clarion.store.postgres.engine import PostgresEngine  # noqa: PLC0415 - only with PostgreSQL

    return await PostgresEngine.open(
        url,
        waiting_limit=waiting_limit,
        batch_limit=batch_limit,
        slow_reads=slow_reads,
        on_connect=on_connect,
    )
