"""Removes erased users from events that named them before they were erased, and still do.

On PostgreSQL with a locale other than `C`, earlier releases skipped these events. A tombstone is a
keyed hash: so the ids that events name are hashed, and compared with it.
"""

from __future__ import annotations

from clarion.access.port import Vault
from clarion.app.stores import open_stores
from clarion.cli.flags import SettingFlags, load_settings
from clarion.events.sql import naming
from clarion.events.sql.naming import NamingEvent, names_of
from clarion.history.sql.redaction import redact_notifications
from clarion.people.erasure.hashes import UserHashes
from clarion.people.erasure.sql.hash_keys import SqlHashKeys
from clarion.store.engine import Engine
from clarion.store.statement import Step, Unit, statement

_PAGE = 1000
SELECT_TOMBSTONES = statement(
    "select_tombstones",
    f"""SELECT id, user_hash, requested_at FROM erasures WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT {_PAGE}""",  # noqa: S608 - of constants
)


async def repeat(**settings: SettingFlags) -> None:
    """Remove erased users from the events that still name them. Servers may run meanwhile.

    Events that are newer than the erasure stay as they are.
    """
    async with open_stores(load_settings(settings)) as stores:
        count, after = 0, ""
        while apps := await stores.apps.list(after, _PAGE):
            for app in apps:
                count += await repeat_erasures(stores.engine, stores.vault, app.id)
            after = apps[-1].id
        print(f"Removed erased users from {count:,} events.")


async def repeat_erasures(engine: Engine, vault: Vault, app_id: str) -> int:
    """Remove the erased users of an app from older events; return how many were changed."""
    tombstones = await _read_tombstones(engine, app_id)
    hashes, total = UserHashes(SqlHashKeys(engine, vault)), 0
    # An event is changed for one user at a time. What a server changed meanwhile is found again.
    while tombstones and (count := await _repeat_once(engine, hashes, app_id, tombstones)):
        total += count
    if total:
        await engine.scrub()
    return total


async def _read_tombstones(engine: Engine, app_id: str) -> dict[bytes, int]:
    """Return when users were erased, by their hashes; of several erasures, the last counts."""
    found: dict[bytes, int] = {}
    after = ""
    while rows := await engine.fetch_in_background(SELECT_TOMBSTONES, app_id=app_id, after=after):
        found |= {bytes(user_hash): requested_at for _, user_hash, requested_at in rows}
        after = rows[-1][0]
    return found


async def _repeat_once(
    engine: Engine, hashes: UserHashes, app_id: str, tombstones: dict[bytes, int]
) -> int:
    count = 0
    async for found in naming.read_all(engine, app_id):
        for user_id in sorted(names_of(found.event)):
            user_hash = await hashes.find(app_id, user_id)
            if found.event.created_at <= tombstones.get(user_hash or b"", -1):
                count += await _erase(engine, found, user_id)
                break
    return count


async def _erase(engine: Engine, found: NamingEvent, user_id: str) -> int:
    """Remove a user from an event and from what others received of it, as an erasure does."""

    async def write(*steps: Step) -> int:
        done = await engine.write(Unit(user_id, steps, found.event.app_id))
        return len(done[0]) if done else 0

    async for steps in redact_notifications(
        engine, found.event.app_id, found.event.id, found.event.content, user_id
    ):
        if steps:
            await write(*steps)
    return await write(naming.erase(found, user_id))
