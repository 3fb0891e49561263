"""`clarion vault`: replace the master key, and show which keys are in use."""

from __future__ import annotations

from cyclopts import App

from clarion.access.vault import key_id_of
from clarion.app import key_rotation
from clarion.app.installation import void_copy
from clarion.app.stores import open_audit_keys, open_clock, open_database
from clarion.audit.commands import record_command
from clarion.audit.sql import AuditLog
from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.printing import show_progress
from clarion.store.opening import sqlite_path
from clarion.system.data_directory import DataDirectory

app = App(name="vault")


@app.command
async def rotate(**settings: SettingFlags) -> None:
    """Replace the master key and encrypt all secrets again.

    On SQLite, stop the server first. On PostgreSQL the command runs twice, and says what to do in
    between. If it is interrupted, run it again.
    """
    loaded = load_settings(settings)
    directory = DataDirectory(loaded.data)
    directory.ensure()
    with directory.replace_keys():
        directory.read_master_keys()  # a missing one is not replaced in silence
        async with open_database(loaded) as engine:
            clock = await open_clock(engine)
            log = AuditLog(engine, open_audit_keys(directory), clock, loaded.server_id)
            with show_progress("Encrypting secrets") as (on_progress,):
                await void_copy(engine)
                async with record_command(log):
                    new = await key_rotation.rotate(
                        directory, engine, loaded.database_url, clock, on_progress
                    )
    print(f"All secrets are encrypted with the key {new.hex()}.")
    print("Back up master.key, separately from the database.")
    if not sqlite_path(loaded.database_url):
        print("Copy master.key to the data directory of every other node.")


@app.command
async def status(**settings: SettingFlags) -> None:
    """Show the keys in master.key, and how many secrets are encrypted with each."""
    loaded = load_settings(settings)
    directory = DataDirectory(loaded.data)
    ids = [key_id_of(key) for key in directory.read_master_keys()]
    async with open_database(loaded) as engine:
        counts = await key_rotation.count_keys(engine.fetch_in_background)
    for number, key_id in enumerate(ids):
        role = "to be removed by `clarion vault rotate`" if number else "current"
        print(f"{key_id.hex()}  {counts.pop(key_id, 0):>9,}  {role}")
    for unknown, count in sorted(counts.items()):
        print(f"{unknown.hex() or 'damaged':8}  {count:>9,}  not in master.key")
