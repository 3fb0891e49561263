"""Erases and deletes again the users that a restored backup brought back, using newer audit logs.

The log names users by pseudonyms, made with the master key. So this computes the pseudonym of every
user in the restored database, and deletes those that the log shows as deleted since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

from clarion.app.stores import Stores, open_stores
from clarion.audit.chain import content_of
from clarion.audit.log_file import read_entries
from clarion.audit.model import AuditResult, Entry
from clarion.cli.flags import SettingFlags, load_settings
from clarion.errors import StartError, count
from clarion.events.sql import naming
from clarion.events.sql.naming import names_of
from clarion.people.erasure.eraser import Eraser
from clarion.store.statement import statement

_PAGE = 1000
# The tables in which a user id can be, without a record of the user.
_PLACES = {"users": "id", "inboxes": "user_id", "devices": "user_id"}
_SELECTS = tuple(
    statement(
        f"select_users_in_{table}",
        f"""SELECT DISTINCT {column} FROM {table} WHERE app_id = :app_id AND {column} > :after
        ORDER BY {column} LIMIT {_PAGE}""",  # noqa: S608 - of constants
    )
    for table, column in _PLACES.items()
)

# An app, and the pseudonym of one of its users.
Subject = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many users were erased and deleted again."""

    erased: int
    deleted: int

    def __str__(self) -> str:
        return (
            f"Erased {count(self.erased, 'user')} and deleted {count(self.deleted, 'user')} again."
        )


async def replay(*audit_log: Path, **settings: SettingFlags) -> None:
    """Erase and delete again the users who were erased or deleted after a restored backup.

    Parameters
    ----------
    audit_log
        Audit logs with entries from after the backup.

    """
    loaded = load_settings(settings)
    if not audit_log:
        raise StartError("Name an audit log with entries from after the backup.")
    if missing := [each for each in audit_log if not each.is_file()]:
        raise StartError(f"There is no file {missing[0]}.")
    async with open_stores(loaded) as stores:
        print(await replay_erasures(stores, audit_log, loaded.deleted_user_days))


async def replay_erasures(stores: Stores, paths: Iterable[Path], kept_days: int) -> Replayed:
    """Apply the deletions of audit logs that the database does not have."""
    last = await _find_last(stores, paths)
    eraser = Eraser(
        deleted=stores.deleted_users,
        erasures=stores.erasures,
        clock=stores.clock,
        scrub=stores.engine.scrub,
        on_deleted=_ignore,
        on_erased=_ignore,
        kept_days=kept_days,
    )
    erased = deleted = 0
    for app_id in {app_id for app_id, _ in last}:
        async for user_id, entry in _find_users(stores, app_id, last):
            if entry.target.get("erased") == "true":
                await eraser.erase(app_id, user_id)
                erased += 1
            elif await stores.deleted_users.delete(app_id, user_id, entry.created_at):
                deleted += 1
    return Replayed(erased, deleted)


async def _find_last(stores: Stores, paths: Iterable[Path]) -> dict[Subject, Entry]:
    """Return what happened last to each user who was deleted or restored after the backup."""
    chain, keys = stores.audit_log.chain, stores.audit_log.keys
    state, known = await chain.get_state(), set[str]()
    while page := await chain.read_waiting(max(known, default=""), _PAGE):
        known.update(each.id for each in page)
    found: dict[Subject, Entry] = {}
    for path in paths:
        for _, entry in read_entries(path):
            if (
                entry is not None
                and entry.subject is not None
                and _is_deletion(entry)
                and (entry.sequence or 0) > state.sequence
                and entry.id not in known
                and keys.verifies(entry.signature, *content_of(entry))
            ):
                subject = (entry.app_id, entry.subject)
                found[subject] = max(found.get(subject, entry), entry, key=lambda each: each.id)
    return {subject: each for subject, each in found.items() if each.action == "user.delete"}


def _is_deletion(entry: Entry) -> bool:
    return entry.action in {"user.delete", "user.restore"} and entry.result is AuditResult.DONE


async def _find_users(
    stores: Stores, app_id: str, last: dict[Subject, Entry]
) -> AsyncIterator[tuple[str, Entry]]:
    """Yield the users of an app that exist, and what happened to them."""
    keys, seen = stores.audit_log.keys, set[str]()
    async for user_id in _list_ids(stores, app_id):
        names = keys.list_names(app_id, user_id)
        entry = next(filter(None, (last.get((app_id, name)) for name in names)), None)
        if entry is not None and user_id not in seen:
            seen.add(user_id)
            yield user_id, entry


async def _list_ids(stores: Stores, app_id: str) -> AsyncIterator[str]:
    """Yield the ids of users that an app has stored, some of them several times."""
    for select in _SELECTS:
        after = ""
        while rows := await stores.engine.fetch_in_background(select, app_id=app_id, after=after):
            for (user_id,) in rows:
                yield user_id
            after = rows[-1][0]
    async for found in naming.read_all(stores.engine, app_id):
        for user_id in names_of(found.event):
            yield user_id


async def _ignore(_app_id: str, _user_id: str) -> None:
    """Do nothing: no client is connected to a database that was just restored."""
