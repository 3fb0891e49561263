"""Which nodes still seal with a master key: the writer of each holds a shared lock of its key.

The lock ends with the connection, and is taken before anything is written on the next one. So the
holder of the exclusive lock knows that no node writes values sealed with this key.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from clarion.errors import StoreUnavailable

if TYPE_CHECKING:
    import asyncpg

# Any number, as long as every release of Clarion uses the same.
_LOCKS = 0x636C6B79
_REPLACED = (
    "The key {} in master.key was replaced by `clarion vault rotate`. Copy master.key from the "
    "node where it ran, and start this one again."
)


async def hold_key(key_id: bytes, connection: asyncpg.Connection) -> None:
    """Hold a key until the connection is closed; `StoreUnavailable` if it is replaced."""
    shared = "SELECT pg_try_advisory_lock_shared($1, $2)"
    is_held = await connection.fetchval(shared, _LOCKS, _number(key_id))
    retired = "SELECT COUNT(*) FROM retired_keys WHERE id = $1"
    if not is_held or await connection.fetchval(retired, key_id.hex()):
        raise StoreUnavailable(_REPLACED.format(key_id.hex()))


@contextlib.asynccontextmanager
async def hold_key_alone(url: str, key_id: bytes) -> AsyncIterator[bool]:
    """Keep every node from using a key; False if one uses it now."""
    from clarion.store.postgres.engine import connect_or_explain  # noqa: PLC0415 - only with PostgreSQL

    connection = await connect_or_explain(url)
    try:
        exclusive = "SELECT pg_try_advisory_lock($1, $2)"
        yield await connection.fetchval(exclusive, _LOCKS, _number(key_id))
    finally:
        await connection.close()


def _number(key_id: bytes) -> int:
    return int.from_bytes(key_id, "big", signed=True)
