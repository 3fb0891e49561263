"""Every column with sealed values, and how all of them are sealed again with a new master key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from clarion.access.administrators.model import totp_context
from clarion.access.app_keys import user_key_context
from clarion.access.vault import AesVault, find_key_id, key_id_of
from clarion.audit.chain import derive_key, retired_key_context
from clarion.audit.sql import keep_retired_key
from clarion.channels.model import secrets_context
from clarion.clock import Clock
from clarion.errors import CommandFailed, InternalError, StartError
from clarion.idempotency.model import answer_context
from clarion.people.erasure.model import hash_key_context, subject_context
from clarion.push.model import address_context
from clarion.store.engine import Engine, Fetch
from clarion.store.opening import sqlite_path
from clarion.store.postgres.key_locks import hold_key_alone
from clarion.store.sealed_columns import SealedColumn
from clarion.store.statement import Row, Unit, Value, statement
from clarion.system.data_directory import DataDirectory, new_master_key

# While servers run, values can be sealed with the new key and deleted, but not added with the old
# one: the second pass finds nothing.
_PASSES = 3


def seal_context(installation_id: str) -> str:
    """Return the context of the value that shows which master key a database has."""
    return f"installation/{installation_id}"


# A new column of bytes belongs here, or to `PLAIN`.
SEALED = (
    SealedColumn(
        table="installation",
        column="seal",
        key=("id",),
        fields=("id",),
        context=seal_context,
    ),
    SealedColumn(
        table="user_keys",
        column="key",
        key=("app_id", "kid"),
        fields=("app_id", "kid"),
        context=user_key_context,
    ),
    SealedColumn(
        table="idempotency_keys",
        column="answer",
        key=("app_id", "key"),
        fields=("app_id", "key"),
        context=answer_context,
    ),
    SealedColumn(
        table="providers",
        column="secrets",
        key=("app_id", "channel", "name"),
        fields=("app_id", "channel", "name"),
        context=secrets_context,
    ),
    SealedColumn(
        table="devices",
        column="address",
        key=("id",),
        fields=("id", "app_id", "token_hash"),
        context=lambda _id, app_id, token_hash: address_context(app_id, token_hash),
    ),
    SealedColumn(
        table="erasures",
        column="subject",
        key=("app_id", "id"),
        fields=("app_id", "id"),
        context=subject_context,
    ),
    SealedColumn(
        table="erasure_keys",
        column="key",
        key=("app_id",),
        fields=("app_id",),
        context=hash_key_context,
    ),
    SealedColumn(
        table="audit_keys",
        column="sealed_key",
        key=("id",),
        fields=("id",),
        context=retired_key_context,
    ),
    SealedColumn(
        table="totp_secrets",
        column="secret",
        key=("administrator_id", "state"),
        fields=("administrator_id", "state"),
        context=lambda administrator_id, _state: totp_context(administrator_id),
    ),
)
# Bytes that are no secrets: hashes, and messages.
PLAIN = frozenset(
    {
        ("api_keys", "secret_hash"),
        ("tickets", "hash"),
        ("admin_keys", "secret_hash"),
        ("admin_links", "token_hash"),
        ("admin_sessions", "secret_hash"),
        ("trusted_devices", "token_hash"),
        ("recovery_codes", "code_hash"),
        ("recovery_codes", "salt"),
        ("idempotency_keys", "fingerprint"),
        ("devices", "token_hash"),
        ("push_endpoints", "capability_hash"),
        ("devices", "secret_hash"),
        ("messages", "payload"),
        ("feedback", "token_hash"),
        ("topic_messages", "payload"),
        ("erasures", "user_hash"),
        ("former_device_users", "token_hash"),
        ("copied_tables", "last_key"),
    }
)

RETIRE_KEY = statement(
    "retire_key",
    "INSERT INTO retired_keys (id, retired_at) VALUES (:id, :now) ON CONFLICT (id) DO NOTHING",
)
FIND_RETIRED_KEY = statement("find_retired_key", "SELECT id FROM retired_keys WHERE id = :id")


async def refuse_retired_key(engine: Engine, key_id: bytes) -> None:
    """Raise `StartError` if the key was replaced: what is sealed with it would be lost."""
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


async def find_unreadable(fetch: Fetch, vault: AesVault) -> str | None:
    """Return why a value cannot be read: one of each column is tried."""
    for column in SEALED:
        for row in await fetch(column.select_sample()):
            try:
                vault.open(row[-1], column.context(*row[:-1]))
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
    vault = AesVault(*keys)
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
    engine: Engine, vault: AesVault, on_progress: Callable[[int, int], None]
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


async def _reseal(engine: Engine, vault: AesVault, column: SealedColumn) -> AsyncIterator[int]:
    """Seal the values of a column with the first key; yield how many were read, by pages."""
    page, replace = column.select_page(), column.replace()
    after: dict[str, Value] = dict.fromkeys(column.key, "")
    while rows := await engine.fetch(page, **after):
        changes = [
            replace.bind(
                **_key(column, row), before=row[-1], sealed=_reseal_value(vault, column, row)
            )
            for row in rows
            if row[-1] is not None and find_key_id(row[-1]) != vault.key_id
        ]
        if changes:
            await engine.write(Unit("", (replace.many(changes),)))
        after = _key(column, rows[-1])
        yield sum(row[-1] is not None for row in rows)


def _reseal_value(vault: AesVault, column: SealedColumn, row: Row) -> bytes:
    context = column.context(*row[:-1])
    try:
        return vault.seal(vault.open(row[-1], context), context)
    except InternalError as error:
        key = ", ".join(f"{name} {value!r}" for name, value in _key(column, row).items())
        raise CommandFailed(
            f"{column.table}.{column.column} cannot be decrypted for {key}, so the old key is "
            "kept. Restore this row from a backup, or delete it, and try again."
        ) from error


def _key(column: SealedColumn, row: Row) -> dict[str, Value]:
    """Return the key of a row that has the fields of the column."""
    return {name: row[column.fields.index(name)] for name in column.key}
