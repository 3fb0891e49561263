"""Which installation a database is of, and whether a node has its master key."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from clarion.access.vault import Vault, find_key_id
from clarion.clock import Clock
from clarion.errors import InternalError, StartError
from clarion.store.engine import Engine, Fetch
from clarion.store.identity import FIND_COPY, INSERT, SELECT, VOID_COPY
from clarion.store.opening import describe_url
from clarion.store.statement import Unit
from clarion.store.tables import seal_context
from clarion.system.data_directory import DataDirectory

_ID_BYTES = 8
_SEALED = b"clarion"


@dataclass(frozen=True, slots=True)
class Installation:
    """The id of a database, and its readable name."""

    id: str
    database: str


async def find_key_of(fetch: Fetch) -> bytes | None:
    """Return the id of the master key of a database; None if nothing is sealed there yet."""
    rows = await fetch(SELECT)
    return find_key_id(rows[0][1]) if rows else None


def refuse_new_key(directory: DataDirectory, key_id: bytes, database_url: str) -> StartError:
    """Return the error for a data directory without a key whose database has one."""
    return StartError(
        f"The secrets in {describe_url(database_url)} are encrypted with the master key "
        f"{key_id.hex()}, and there is no {directory.master_key}. Copy master.key from another "
        "node of this database, or from a backup. A new key could not read them."
    )


async def identify(
    engine: Engine, vault: Vault, clock: Clock, directory: DataDirectory, database_url: str
) -> Installation:
    """Return which installation the database is; `StartError` if it is not to be opened.

    A new database gets an id. One whose secrets are sealed with another master key is refused, and
    so is an unfinished copy.
    """
    if await engine.fetch(FIND_COPY):
        raise StartError(
            f"`clarion migrate-data` has not finished copying into {describe_url(database_url)}. "
            "Run it again: it continues where it stopped."
        )
    rows = await engine.fetch(SELECT)
    if not rows:
        await _add(engine, vault, clock)
        rows = await engine.fetch(SELECT)
    ((id_, seal, copy_id),) = rows
    check_key(vault, id_, seal, directory, database_url)
    if copy_id is not None:
        await void_copy(engine)
    return Installation(id_, describe_url(database_url))


async def void_copy(engine: Engine) -> None:
    """Record that the database was used, so that an unfinished copy of it starts again."""
    await engine.write(Unit("", (VOID_COPY.step(),)))


async def _add(engine: Engine, vault: Vault, clock: Clock) -> None:
    id_ = secrets.token_hex(_ID_BYTES)
    seal = vault.seal(_SEALED, seal_context(id_))
    await engine.write(Unit("", (INSERT.step(id=id_, seal=seal, now=clock.now()),)))


def check_key(
    vault: Vault, id_: str, seal: bytes, directory: DataDirectory, database_url: str
) -> None:
    """Raise `StartError` if the secrets of a database are not sealed with a key of the vault."""
    try:
        vault.open(seal, seal_context(id_))
    except InternalError as error:
        raise StartError(
            f"The secrets in {describe_url(database_url)} are encrypted with the master key "
            f"{find_key_id(seal).hex()}, but {directory.master_key} has the key "
            f"{vault.key_id.hex()}. Copy master.key from another node of this database, or from a "
            "backup; or choose another directory with --data."
        ) from error
