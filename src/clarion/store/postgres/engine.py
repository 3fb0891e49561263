"""The PostgreSQL engine: group commit on one connection, claims on another, reads from pools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import asyncpg

from clarion.errors import ReadTooSlow, StartError, StoreUnavailable
from clarion.store.companions import write_accompanied
from clarion.store.group_commit import GroupCommit, Rows, make_refusals
from clarion.store.migrations.plan import OnPostponed, apply_to_postgres, log_postponed
from clarion.store.postgres.address import choose_tls, name_host
from clarion.store.postgres.outage import DatabaseOutage, describe
from clarion.store.postgres.runner import PostgresRunner
from clarion.store.shared_reads import PAUSE_S
from clarion.store.slots import BACKGROUND_LIMIT_S, USUAL, Slots, SlowReadLimits
from clarion.store.statement import Row, Statement, Unit, Value

# `synchronous_commit=off` would lose acknowledged work in a crash of the database.
# Connections stay open while they are idle, so the server checks each minute that they are alive.
SERVER_SETTINGS = {
    "application_name": "clarion",
    "synchronous_commit": "on",
    "jit": "off",
    "tcp_keepalives_idle": "60",
}
_CONNECT: dict[str, Any] = {"timeout": 10, "server_settings": SERVER_SETTINGS}
# The transaction of a node that is paused in the middle of one holds its rows no longer than this:
# the batches of all nodes would wait for it, and be given up after ten seconds.
_OPEN_MS = 5_000
# The connections of each kind of read; `docs/how-to/run-on-postgresql.md` states their sum.
_QUICK, _SLOW, _BACKGROUND, _CHECKS = 4, 2, 1, 1
# Below the two seconds of `Dependency.check`.
_CHECK_S = 1.5
_FETCH_S = 30.0
READ_TIME = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
# The tasks of housekeeping wait for each other.
_BACKGROUND_FETCH_S = 120.0
# Beyond the time of the read itself: to connect, and to receive that the server ended it.
_ANSWER_S = 5.0
_CLOSE_S = 5.0
OnConnect = Callable[[asyncpg.Connection], Awaitable[None]]
ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class _Readers:
    """The connections for one kind of reads."""

    def __init__(self, pool: asyncpg.Pool, outage: DatabaseOutage) -> None:
        self._pool = pool
        self._outage = outage

    @classmethod
    async def open(
        cls, outage: DatabaseOutage, count: int, *, at_once: bool, limit_s: float | None = None
    ) -> _Readers:
        """Open the connections; the server ends a read after the limit."""
        limit = {} if limit_s is None else {"statement_timeout": str(int(limit_s * 1000))}
        connect = _CONNECT | {"server_settings": SERVER_SETTINGS | limit}
        pool = await asyncpg.create_pool(
            outage.url,
            min_size=count if at_once else 0,
            max_size=count,
            max_inactive_connection_lifetime=0,
            reset=_skip_reset,
            **connect,
            **choose_tls(outage.url),
        )
        return cls(pool, outage)

    async def fetch(self, text: str, values: Row, *, within_s: float) -> list[Row]:
        try:
            async with asyncio.timeout(within_s), self._pool.acquire() as connection:
                try:
                    return list(map(tuple, await connection.fetch(text, *values)))
                except asyncio.CancelledError:
                    # The pool would wait for the server to confirm, which may never answer.
                    connection.terminate()
                    raise
        except asyncpg.QueryCanceledError as error:
            raise ReadTooSlow from error
        except ERRORS as error:
            self._outage.note(error)
            raise StoreUnavailable from error

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


class PostgresEngine:
    """An open PostgreSQL database.

    Each kind of read has connections of its own: short ones do not wait for long ones, the check
    for neither, and housekeeping not for requests.
    """

    shared_read_pause_s = PAUSE_S

    def __init__(
        self,
        readers: tuple[_Readers, _Readers, _Readers, _Readers],
        runners: tuple[PostgresRunner, PostgresRunner],
        commits: tuple[GroupCommit, GroupCommit],
        limits: SlowReadLimits,
        outage: DatabaseOutage,
    ) -> None:
        self._outage = outage
        self.commit, self._apart = commits
        self._runners = runners
        self._readers = readers
        self._quick, self._slow, self._background, self._checks = readers
        self._slow_slots = Slots(_SLOW, wait_s=limits.wait_s)
        self._slow_read_s = limits.read_s + _ANSWER_S

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        waiting_limit: int,
        batch_limit: int,
        slow_reads: SlowReadLimits = USUAL,
        on_connect: OnConnect | None = None,
        at_once: bool = True,
    ) -> PostgresEngine:
        """Open a database whose migrations are applied.

        `on_connect` is called with each connection that writes, before it is used. All connections
        are opened `at_once`, and none later unless one is lost: the process may run out of
        descriptors. Otherwise those for reads are opened when they are needed.
        """
        outage = DatabaseOutage(url)
        runner = PostgresRunner(partial(_connect_writer, url, on_connect))
        apart = PostgresRunner(partial(_connect_writer, url, None))
        try:
            await runner.open()
            await apart.open()
            readers = await asyncio.gather(
                _Readers.open(outage, _QUICK, at_once=at_once),
                _Readers.open(outage, _SLOW, at_once=at_once, limit_s=slow_reads.read_s),
                _Readers.open(outage, _BACKGROUND, at_once=at_once, limit_s=BACKGROUND_LIMIT_S),
                _Readers.open(outage, _CHECKS, at_once=at_once),
            )
        except ERRORS as error:
            raise StartError(
                f"PostgreSQL did not accept all connections ({type(error).__name__}). A node opens "
                "ten: check max_connections of the server, and --processes."
            ) from error
        runners = (runner, apart)
        shared: dict[str, Any] = {
            "waiting_limit": waiting_limit,
            "batch_limit": batch_limit,
            "on_unavailable": outage.note,
            "refusals": make_refusals(),
        }
        commits = (GroupCommit(runner, **shared), GroupCommit(apart, **shared))
        return cls(readers, runners, commits, slow_reads, outage)

    async def write(self, unit: Unit) -> Rows | None:
        return await write_accompanied(self.commit, unit)

    async def write_apart(self, unit: Unit) -> Rows | None:
        return await self._apart.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        row = statement.bind(**values)
        return await self._quick.fetch(statement.text, row, within_s=_FETCH_S)

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        row = statement.bind(**values)
        async with self._slow_slots.take(values.get("app_id")):
            return await self._slow.fetch(statement.text, row, within_s=self._slow_read_s)

    async def fetch_in_background(self, statement: Statement, **values: Value) -> Sequence[Row]:
        row = statement.bind(**values)
        return await self._background.fetch(statement.text, row, within_s=_BACKGROUND_FETCH_S)

    async def scrub(self) -> bool:
        return True

    async def read_time(self) -> int:
        ((now,),) = await self._checks.fetch(READ_TIME, (), within_s=_CHECK_S)
        return int(now)

    async def check(self) -> None:
        if self.commit.is_stuck:
            raise StoreUnavailable
        await self._checks.fetch("SELECT 1", (), within_s=_CHECK_S)
        self._outage.end()

    async def close(self) -> None:
        await asyncio.gather(self.commit.close(), self._apart.close())
        await asyncio.gather(*(each.close() for each in self._runners))
        await asyncio.gather(*(each.close() for each in self._readers))


async def _connect_writer(url: str, on_connect: OnConnect | None) -> asyncpg.Connection:
    limit = {"idle_in_transaction_session_timeout": str(_OPEN_MS)}
    connect = _CONNECT | {"server_settings": SERVER_SETTINGS | limit}
    connection: asyncpg.Connection = await asyncpg.connect(url, **connect, **choose_tls(url))
    if on_connect is not None:
        try:
            await on_connect(connection)
        except BaseException:
            connection.terminate()
            raise
    return connection


async def _skip_reset(_connection: object) -> None:
    """Do not reset: a read changes nothing, and the reset costs as much as the read."""


async def migrate(url: str, on_postponed: OnPostponed = log_postponed) -> list[str]:
    """Apply the missing migrations and return their titles."""
    async with connected(url) as connection:
        return await apply_to_postgres(connection, on_postponed=on_postponed)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Connect for a start or a command; `StartError` if anything fails or ends the connection."""
    connection = await connect_or_explain(url)
    try:
        try:
            yield connection
        finally:
            await connection.close()
    except ERRORS as error:
        raise describe_failure(error) from error


def describe_failure(error: Exception) -> StartError:
    """Return what to say of an error of the driver in one line."""
    said = " ".join(str(error).split()) or type(error).__name__
    return StartError(f"PostgreSQL failed: {said}. Try again.")


def _explain(error: Exception, url: str) -> str:
    if isinstance(error, ValueError):
        return "the URL is not valid"
    words = describe(error, name_host(url))
    return f"{words[0].lower()}{words[1:]}"


async def connect_or_explain(url: str) -> asyncpg.Connection:
    """Connect, or raise a `StartError` that says what to do, without the password."""
    try:
        return await asyncpg.connect(url, **_CONNECT, **choose_tls(url))
    except asyncpg.InvalidCatalogNameError as error:
        raise StartError(
            f"PostgreSQL answers, but {error}. Create it with: createdb NAME"
        ) from error
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        raise StartError(
            f"PostgreSQL refused the user or password of --database: {error}"
        ) from error
    except (*ERRORS, ValueError) as error:  # ValueError: not a valid URL
        if isinstance(error, ConnectionError) and "rejected SSL" in str(error):
            raise StartError(
                "PostgreSQL offers no TLS, and is not on this machine: the password and all data "
                "could be read on the way. Turn `ssl` on there, or, on a network that is trusted, "
                "add ?sslmode=disable to --database."
            ) from error
        raise StartError(
            f"PostgreSQL cannot be reached: {_explain(error, url)}. "
            "Check the host and port of --database and that the server is running."
        ) from error
