"""How all sealed values are sealed again with a new master key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from clarion.access.vault import Vault, find_key_id, key_id_of
from clarion.app.tables import TABLES
from clarion.audit.chain import derive_key
from clarion.audit.sql import keep_retired_key
from clarion.clock import Clock
from clarion.errors import CommandFailed, InternalError, StartError
from clarion.store.engine import Engine, Fetch
from clarion.store.identity import FIND_RETIRED_KEY, RETIRE_KEY
from clarion.store.lifecycle.sealing import SealedColumn, list_sealed
from clarion.store.opening import sqlite_path
from clarion.store.postgres.key_locks import hold_key_alone
from clarion.store.statement import Row, Unit, Value
from clarion.system.data_directory import DataDirectory, new_master_key

# While servers run, values can be sealed with the new key and deleted, but not added with the old
# one: the second pass finds nothing.
_PASSES = 3


SEALED = tuple(list_sealed(TABLES))


async def refuse_retired_key(engine: Engine, key_id: bytes) -> None:
    """Raise `StartError` if the key was replaced: values sealed with it would be lost."""
    if await engine.fetch(FIND_RETIRED_KEY, id=key_id.hex()):
        raise StartError(
            f"The key {key_id.hex()} in master.key was replaced by `clarion vault rotate`. Copy "
            "master.key from the node where it ran, or restore the newest one from a backup."
        )


async def count_keys(fetch: Fetch) -> dict[bytes, int]:
    """Return how many values there are by the id of their key; it is empty for damaged ones."""
    counts = Counter[bytes]()
    for column in SEALED:
        for prefix, count in await fetch(column.count_keys()):
            counts[find_key_id(prefix)] += count
    return dict(counts)


async def find_unreadable(fetch: Fetch, vault: Vault) -> str | None:
    """Return why a value cannot be read: one of each column is tried."""
    for column in SEALED:
        for row in await fetch(column.select_sample()):
            try:
                vault.open(row[-1], column.find_context(row))
            except InternalError as error:
                return error.detail
    return None


async def rotate(
    directory: DataDirectory,
    engine: Engine,
    database_url: str,
    clock: Clock,
    on_progress: Callable[[int, int], None],
) -> bytes:
    """Replace the master key and return the id of the new one.

    The caller holds the keys of the directory alone. A rotation that was interrupted is resumed.
    At every moment `master.key` has the key of every value: the new key is stored before it is
    used, and the old one is removed when no value needs it and no node uses it.
    """
    keys = directory.read_master_keys()
    _refuse_unknown(keys, await count_keys(engine.fetch_in_background))
    if len(keys) == 1:
        keys = (new_master_key(), *keys)
        directory.write_master_keys(keys)
    vault = Vault(*keys)
    old = key_id_of(keys[-1])
    async with _hold_alone(database_url, old) as is_alone:
        if not is_alone:
            raise CommandFailed(_still_used(directory, old))
        now = clock.now()
        # Entries of the audit log that were signed with the old key can still be verified.
        keep = keep_retired_key((old.hex(), derive_key(keys[-1])), vault, now)
        await engine.write(Unit("", (RETIRE_KEY.step(id=old.hex(), now=now), keep)))
        await _reseal_all(engine, vault, on_progress)
        directory.write_master_keys(keys[:1])
    return vault.key_id


def _refuse_unknown(keys: Sequence[bytes], used: Mapping[bytes, int]) -> None:
    unknown = set(filter(None, used)) - set(map(key_id_of, keys))
    if unknown:
        names = ", ".join(sorted(each.hex() for each in unknown))
        raise CommandFailed(
            f"Some secrets are encrypted with keys that are not in master.key: {names}. Copy "
            "master.key from the node where `clarion vault rotate` ran, or restore it."
        )


@contextlib.asynccontextmanager
async def _hold_alone(database_url: str, key_id: bytes) -> AsyncIterator[bool]:
    if sqlite_path(database_url):
        yield True  # the lock of the directory is enough
        return
    async with hold_key_alone(database_url, key_id) as is_alone:
        yield is_alone


def _still_used(directory: DataDirectory, key_id: bytes) -> str:
    return (
        f"The new key is in {directory.master_key}, and servers still use the old one, "
        f"{key_id.hex()}.\n"
        "1. Copy master.key to the data directory of every node.\n"
        "2. Restart the nodes, one after the other.\n"
        "3. Run `clarion vault rotate` again: it finishes the rotation."
    )


async def _reseal_all(
    engine: Engine, vault: Vault, on_progress: Callable[[int, int], None]
) -> None:
    """Seal every value with the first key; `CommandFailed` if one cannot be read."""
    for _ in range(_PASSES):
        counts = await count_keys(engine.fetch_in_background)
        if set(counts) <= {vault.key_id}:
            return
        done, total = 0, sum(counts.values())
        for column in SEALED:
            async for count in _reseal(engine, vault, column):
                done += count
                on_progress(min(done, total), total)
    raise CommandFailed("Values with the old key are still being added. Try again.")


async def _reseal(engine: Engine, vault: Vault, column: SealedColumn) -> AsyncIterator[int]:
    """Seal the values of a column with the first key; yield how many were read, by pages."""
    page, replace = column.select_page(), column.replace()
    after: dict[str, Value] = dict.fromkeys(column.key, "")
    while rows := await engine.fetch(page, **after):
        changes = [
            replace.bind(
                **column.read_key(row), before=row[-1], sealed=_reseal_value(vault, column, row)
            )
            for row in rows
            if row[-1] is not None and find_key_id(row[-1]) != vault.key_id
        ]
        if changes:
            await engine.write(Unit("", (replace.many(changes),)))
        after = column.read_key(rows[-1])
        yield sum(row[-1] is not None for row in rows)


def _reseal_value(vault: Vault, column: SealedColumn, row: Row) -> bytes:
    context = column.find_context(row)
    try:
        return vault.seal(vault.open(row[-1], context), context)
    except InternalError as error:
        key = ", ".join(f"{name} {value!r}" for name, value in column.read_key(row).items())
        raise CommandFailed(
            f"{column.table}.{column.column} cannot be decrypted for {key}, so the old key is "
            "kept. Restore this row from a backup, or delete it, and try again."
        ) from error
