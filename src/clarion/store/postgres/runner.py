"""Runs batches on a PostgreSQL connection, each in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from clarion.errors import StorageFull, StoreUnavailable
from clarion.store.batch import Group, Members, Outcome, Report, Spoiled, arrange, split
from clarion.store.statement import Unit

ATTEMPTS = 5
BATCH_LIMIT_S = 30.0
_CLOSE_S = 5.0
# Two nodes wrote the same rows: the batch that lost changed nothing and is run again.
_CONTENTION = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
# Errors of one unit.
_OF_A_UNIT = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.InterfaceError,
    asyncpg.ProgramLimitExceededError,  # a text is too long for its index
)
# A connection that ends in the middle of an answer can also confuse asyncpg: `InternalClientError`.
_OF_THE_CONNECTION = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


_FOR_POSTGRES = re.compile(r"/\*postgres (.*?)\*/")


class PostgresRunner:
    """Runs each batch in one transaction; a unit that fails does not affect the others."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection]]) -> None:
        self._connect = connect
        self._connection: asyncpg.Connection | None = None

    async def open(self) -> None:
        """Connect now, rather than for the first batch."""
        await self._open_connection()

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        """Commit a batch with its rows in key order, and retry it after contention."""
        order = sorted(range(len(units)), key=lambda i: units[i].key)
        ordered = [units[i] for i in order]
        report = await self._run_translated(arrange(ordered))
        outcomes = dict(zip(order, report.outcomes(ordered), strict=True))
        return [outcomes[i] for i in range(len(units))]

    async def close(self) -> None:
        """Close the connection, even if the server does not answer."""
        if self._connection is not None:
            with contextlib.suppress(TimeoutError, OSError, asyncpg.PostgresError):
                await self._connection.close(timeout=_CLOSE_S)
            self._disconnect()

    async def _run_translated(self, groups: Sequence[Group]) -> Report:
        # If the server does not answer, the connection is cut: cancelling would wait for it.
        watchdog = asyncio.get_running_loop().call_later(BATCH_LIMIT_S, self._disconnect)
        try:
            return await self._run_with_retries(groups)
        except asyncpg.DiskFullError as error:
            raise StorageFull from error
        except (*_OF_THE_CONNECTION, OSError) as error:
            self._disconnect()
            raise StoreUnavailable from error
        finally:
            watchdog.cancel()

    async def _run_with_retries(self, groups: Sequence[Group]) -> Report:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._run_once(groups)
            except _CONTENTION:
                if attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 - jitter
        raise AssertionError

    async def _run_once(self, groups: Sequence[Group]) -> Report:
        connection = await self._open_connection()
        try:
            async with connection.transaction():
                return await _run_together(connection, groups)
        except Spoiled:
            async with connection.transaction():
                return await _run_apart(connection, groups)

    async def _open_connection(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def _disconnect(self) -> None:
        # The server rolls back what a broken connection has not committed.
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def _run_together(connection: asyncpg.Connection, groups: Sequence[Group]) -> Report:
    report = Report()
    for group in groups:
        members = [member for member in group.members if not report.is_out(member[0])]
        if members:
            await _run_group(connection, group, members, report)
    return report


async def _run_group(
    connection: asyncpg.Connection, group: Group, members: Members, report: Report
) -> None:
    try:
        if group.returns_rows:
            await _fetch_rows(connection, group, members, report)
        else:
            await connection.executemany(group.text, [row for _, rows in members for row in rows])
    except _OF_A_UNIT as error:  # the transaction is aborted, for all of its units
        raise Spoiled from error
    if group.is_guard:
        report.refuse_without_rows(group, members)


async def _fetch_rows(
    connection: asyncpg.Connection, group: Group, members: Members, report: Report
) -> None:
    # The rows of a batch are returned in one list; each carries the position of its unit.
    arguments = [(*row, unit) for unit, rows in members for row in rows]
    if not arguments:
        return
    text = _with_position(unveil(group.text), len(arguments[0]))
    for *row, unit in await connection.fetchmany(text, arguments):
        report.rows.setdefault(unit, {}).setdefault(group.position, []).append(tuple(row))


def unveil(text: str) -> str:
    """Return a statement with what SQLite takes for a comment."""
    return _FOR_POSTGRES.sub(r"\1", text)


def _with_position(text: str, parameter: int) -> str:
    if not re.search(r"\bRETURNING\b", text, re.IGNORECASE):
        raise TypeError(f"a statement in a unit can return rows only by RETURNING: {text}")
    return f"{text}, ${parameter}::int"


async def _run_apart(connection: asyncpg.Connection, groups: Sequence[Group]) -> Report:
    report = Report()
    for unit, steps in split(groups).items():
        await _run_alone(connection, unit, steps, report)
    return report


async def _run_alone(
    connection: asyncpg.Connection, unit: int, steps: Sequence[Group], report: Report
) -> None:
    try:
        async with connection.transaction():  # nested: a savepoint
            for step in steps:
                await _run_group(connection, step, step.members, report)
                if report.is_out(unit):
                    break
    except Spoiled as spoiled:
        report.undo(unit, spoiled, describe)


def describe(error: BaseException) -> tuple[bool, str]:
    """Return whether a constraint refused it, and the name of the error without any values."""
    is_constraint = isinstance(error, asyncpg.IntegrityConstraintViolationError)
    return is_constraint, type(error).__name__
