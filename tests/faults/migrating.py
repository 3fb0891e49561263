"""Migrates a database in a process of its own, which may kill itself on the way.

With a number other than zero the process dies by SIGKILL right after that many statements were sent
to PostgreSQL, or before that statement of SQLite is run. If there are fewer, it ends normally.
"""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

import apsw
import asyncpg

from clarion.store.migrations.plan import Migration, apply_to_postgres, apply_to_sqlite, load
from clarion.store.opening import sqlite_path
from clarion.store.sqlite.runner import open_connection

# As a later release would have them: one that changes rows, one that changes the tables.
LATER = (
    Migration(
        9001,
        "shout",
        "ALTER TABLE api_keys ADD COLUMN shout TEXT NOT NULL DEFAULT ''; "
        "UPDATE api_keys SET shout = upper(label); "
        "CREATE INDEX api_keys_by_shout ON api_keys (shout)",
    ),
    Migration(
        9002,
        "echo",
        "CREATE TABLE echoes (id TEXT PRIMARY KEY, shout TEXT NOT NULL); "
        "INSERT INTO echoes (id, shout) SELECT id, shout FROM api_keys; "
        "DROP INDEX api_keys_by_shout",
    ),
)


PROCESS_LIMIT_S = 60
# Forked from a process that has imported this module: a fresh interpreter would take ten times as
# long, and there is one process for each statement.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


async def run_apart(work: Callable[..., None], *given: Any) -> int:
    """Run something in a process of its own, and return its exit code."""
    process = PROCESSES.Process(target=work, args=given)
    process.start()
    await asyncio.to_thread(process.join, PROCESS_LIMIT_S)
    assert process.exitcode is not None, "the process does not end"
    return process.exitcode


class KillSwitch:
    """Kills this process at the call of the given number; zero is never."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def migrate_sqlite(path: str, switch: KillSwitch) -> None:
    def trace(_cursor: apsw.Cursor, _sql: str, _values: object) -> bool:
        switch.count()
        return True

    connection = open_connection(path)
    connection.exec_trace = trace
    apply_to_sqlite(connection, [*load("sqlite"), *LATER])
    connection.close()


async def migrate_postgres(url: str, switch: KillSwitch) -> None:
    connection = await asyncpg.connect(url)
    connection.add_query_logger(lambda _record: switch.count())
    await apply_to_postgres(connection, [*load("postgres"), *LATER])
    await connection.close()


def migrate(url: str, kill_at: int) -> None:
    path = sqlite_path(url)
    if path:
        migrate_sqlite(path, KillSwitch(kill_at))
    else:
        asyncio.run(migrate_postgres(url, KillSwitch(kill_at)))
