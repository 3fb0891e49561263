"""The PostgreSQL engine: group commit on one connection, reads from a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import asyncpg

from clarion.errors import StartError, StoreUnavailable
from clarion.store.group_commit import GroupCommit, Rows
from clarion.store.migrations.plan import apply_to_postgres
from clarion.store.postgres.runner import PostgresRunner
from clarion.store.statement import Row, Statement, Unit, Value

# `synchronous_commit=off` would lose acknowledged work in a crash of the database.
SERVER_SETTINGS = {"application_name": "clarion", "synchronous_commit": "on", "jit": "off"}
_CONNECT: dict[str, Any] = {"timeout": 10, "server_settings": SERVER_SETTINGS}
_READERS = 4
# Below the two seconds of `Dependency.check`.
_CHECK_S = 1.5
_FETCH_S = 30.0
_CLOSE_S = 5.0
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class PostgresEngine:
    """An open PostgreSQL database."""

    def __init__(self, pool: asyncpg.Pool, runner: PostgresRunner, commit: GroupCommit) -> None:
        self.commit = commit
        self._pool = pool
        self._runner = runner

    @classmethod
    async def open(cls, url: str, *, waiting_limit: int, batch_limit: int) -> PostgresEngine:
        """Open a database whose migrations are applied."""
        pool = await asyncpg.create_pool(
            url, min_size=1, max_size=_READERS, reset=_skip_reset, **_CONNECT
        )
        runner = PostgresRunner(partial(asyncpg.connect, url, **_CONNECT))
        commit = GroupCommit(runner, waiting_limit=waiting_limit, batch_limit=batch_limit)
        return cls(pool, runner, commit)

    async def write(self, unit: Unit) -> Rows | None:
        return await self.commit.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        rows = await self._ask(statement.text, *statement.bind(**values), within_s=_FETCH_S)
        return [tuple(row) for row in rows]

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        return await self.fetch(statement, **values)

    async def check(self) -> None:
        if self.commit.is_stuck:
            raise StoreUnavailable
        await self._ask("SELECT 1", within_s=_CHECK_S)

    async def close(self) -> None:
        await self.commit.close()
        await self._runner.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _ask(self, text: str, *values: Value, within_s: float) -> list[asyncpg.Record]:
        try:
            async with asyncio.timeout(within_s), self._pool.acquire() as connection:
                try:
                    return await connection.fetch(text, *values)
                except asyncio.CancelledError:
                    # The pool would wait for the server to confirm, which may never answer.
                    connection.terminate()
                    raise
        except _ERRORS as error:
            raise StoreUnavailable from error


async def _skip_reset(_connection: object) -> None:
    """Do not reset: a read changes nothing, and the reset costs as much as the read."""


async def migrate(url: str) -> list[str]:
    """Apply the missing migrations and return their titles."""
    connection = await connect_or_explain(url)
    try:
        return await apply_to_postgres(connection)
    finally:
        await connection.close()


async def connect_or_explain(url: str) -> asyncpg.Connection:
    """Connect, or raise a `StartError` that says what to do, without the password."""
    try:
        return await asyncpg.connect(url, **_CONNECT)
    except asyncpg.InvalidCatalogNameError as error:
        raise StartError(
            f"PostgreSQL answers, but {error}. Create it with: createdb NAME"
        ) from error
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        raise StartError(
            f"PostgreSQL refused the user or password of --database: {error}"
        ) from error
    except (*_ERRORS, ValueError) as error:  # ValueError: not a valid URL
        raise StartError(
            f"PostgreSQL cannot be reached ({type(error).__name__}). "
            "Check the host and port of --database and that the server is running."
        ) from error
