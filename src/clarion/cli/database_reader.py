"""Reads of a database that a command opens by itself, without a server's engine."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import asyncpg

from clarion.store.statement import Row, Statement, Value


async def fetch_sqlite(
    connection: apsw.Connection, statement: Statement, **values: Value
) -> Sequence[Row]:
    return connection.execute(statement.text, statement.bind(**values)).fetchall()


async def fetch_postgres(
    connection: asyncpg.Connection, statement: Statement, **values: Value
) -> Sequence[Row]:
    return list(map(tuple, await connection.fetch(statement.text, *statement.bind(**values))))
