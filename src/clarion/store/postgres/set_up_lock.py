"""One node at a time sets up a database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from clarion.errors import StartError

# Any number, as long as every release of Clarion uses the same.
_LOCK = 0x636C7375
_WAIT_S = 60.0


@contextlib.asynccontextmanager
async def set_up_alone(url: str) -> AsyncIterator[None]:
    """Wait for other nodes that set up the database, and lock them out while this one does."""
    from clarion.store.postgres.engine import (  # noqa: PLC0415 - only with PostgreSQL
        ERRORS,
        connect_or_explain,
        describe_failure,
    )

    connection = await connect_or_explain(url)
    try:
        try:
            await connection.execute("SELECT pg_advisory_lock($1)", _LOCK, timeout=_WAIT_S)
        except TimeoutError as error:
            raise StartError(
                f"Another node has been setting up this database for {_WAIT_S:.0f} s. "
                "Stop it, and try again."
            ) from error
        except ERRORS as error:
            raise describe_failure(error) from error
        yield
    finally:
        await connection.close()
