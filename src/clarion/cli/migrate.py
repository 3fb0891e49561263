"""`clarion migrate`: apply missing migrations."""

from __future__ import annotations

from collections.abc import Sequence

from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.errors import CommandFailed, count
from clarion.store import opening
from clarion.store.migrations.plan import Migration
from clarion.system.data_directory import DataDirectory


async def migrate(*, after: Switch = False, **settings: SettingFlags) -> None:
    """Apply missing database migrations.

    Parameters
    ----------
    after
        Fail if a migration must wait because nodes of an earlier release are connected.

    """
    loaded = load_settings(settings)
    DataDirectory(loaded.data).ensure()
    postponed: list[str] = []

    def note(migration: Migration, nodes: Sequence[str]) -> None:
        postponed.append(f"{migration.title} waits for earlier releases at {', '.join(nodes)}")

    applied = await opening.migrate(loaded.database_url, note)
    if applied:
        print(f"Applied {count(len(applied), 'migration')}, up to {applied[-1]}.")
    if after and postponed:
        raise CommandFailed("\n".join((*postponed, "Stop these nodes, and try again.")))
    for each in postponed:
        print(each)
    if not applied and not postponed:
        print("The database is up to date.")
