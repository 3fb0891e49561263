"""Which releases run on a database: the writer of each node holds a shared lock of its release.

A release is named by the newest migration that it knows. The lock ends with the connection, and is
taken before anything is written on the next one. So an `after` step of a migration, which would
break nodes of earlier releases, is applied only when none of them is connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.errors import StoreUnavailable

if TYPE_CHECKING:
    import asyncpg

# Any numbers, as long as every release of Clarion uses the same.
MIGRATION_LOCK = 0x636C6172
_RELEASES = 0x636C726C
_LIST_OLDER = """SELECT DISTINCT COALESCE(host(client_addr), 'local') || ' (process ' || pid || ')'
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objsubid = 2 AND classid = $1 AND objid < $2
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1 LIMIT 20"""
_FIND_LATER = "SELECT MAX(version) FROM migrations WHERE step = 'after' AND version > $1"


async def hold_release(newest: int, connection: asyncpg.Connection) -> None:
    """Hold the lock of a release until the connection is closed.

    `StoreUnavailable` if a later release has applied a change that breaks this one. This waits for
    a running migration, so that either it sees this lock, or its result is seen here.
    """
    await connection.execute("SELECT pg_advisory_lock_shared($1)", MIGRATION_LOCK)
    try:
        held = "SELECT pg_advisory_lock_shared($1, $2)"
        await connection.execute(held, _RELEASES, newest)
        later = await connection.fetchval(_FIND_LATER, newest)
    finally:
        await connection.execute("SELECT pg_advisory_unlock_shared($1)", MIGRATION_LOCK)
    if later is not None:
        raise StoreUnavailable(
            f"The database was upgraded: it is at migration {later}, and this release of Clarion "
            f"knows up to {newest}. Start the newer release."
        )


async def find_older_nodes(connection: asyncpg.Connection, version: int) -> list[str]:
    """Return the connected nodes that do not know a migration, by address and process."""
    rows = await connection.fetch(_LIST_OLDER, _RELEASES, version)
    return [row[0] for row in rows]
