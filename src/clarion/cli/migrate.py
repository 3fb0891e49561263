"""`clarion migrate`: apply missing migrations."""

from __future__ import annotations

from clarion.cli.flags import SettingFlags, load_settings
from clarion.data_directory import DataDirectory
from clarion.store import opening


async def migrate(**settings: SettingFlags) -> None:
    loaded = load_settings(settings)
    DataDirectory(loaded.data).ensure()
    applied = await opening.migrate(loaded.database_url)
    for title in applied:
        print(f"applied {title}")
    if not applied:
        print("The database is up to date.")
