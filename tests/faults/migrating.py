"""A process that brings a database up to date, and can be told to kill itself on the way.

`python -m tests.faults.migrating URL` ends well; with a number behind it, the process dies by
SIGKILL right after that many statements were sent to PostgreSQL, or before that statement of
SQLite is run. If there are fewer, it ends well after all.
"""

import asyncio
import os
import signal
import sys

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


class Fuse:
    """Kills this process when it is called for the given time; zero is never."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def burn(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def migrate_sqlite(path: str, fuse: Fuse) -> None:
    def trace(_cursor: apsw.Cursor, _sql: str, _values: object) -> bool:
        fuse.burn()
        return True

    connection = open_connection(path)
    connection.exec_trace = trace
    apply_to_sqlite(connection, [*load("sqlite"), *LATER])
    connection.close()


async def migrate_postgres(url: str, fuse: Fuse) -> None:
    connection = await asyncpg.connect(url)
    connection.add_query_logger(lambda _record: fuse.burn())
    await apply_to_postgres(connection, [*load("postgres"), *LATER])
    await connection.close()


def main(url: str, calls: str = "0") -> None:
    path = sqlite_path(url)
    if path:
        migrate_sqlite(path, Fuse(int(calls)))
    else:
        asyncio.run(migrate_postgres(url, Fuse(int(calls))))


if __name__ == "__main__":
    main(*sys.argv[1:])
