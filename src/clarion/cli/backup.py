"""`clarion backup`: a consistent copy of the database in one file, while servers run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clarion import __version__
from clarion.app.key_rotation import count_keys
from clarion.app.stores import open_stores
from clarion.audit.commands import record_finished
from clarion.cli.backup_seal import make_seal
from clarion.cli.database_reader import fetch_postgres, fetch_sqlite
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.passphrase import read_passphrase
from clarion.cli.printing import show_progress
from clarion.clock import SystemClock, to_rfc3339
from clarion.errors import ClarionError, CommandFailed, StartError, count
from clarion.settings import Settings
from clarion.store.backups import postgres, sqlite
from clarion.store.backups.archive import FORMAT, ArchiveWriter, Manifest
from clarion.store.engine import Fetch
from clarion.store.migrations.plan import find_missing, load
from clarion.store.opening import sqlite_path
from clarion.store.sqlite.moved import refuse_moved
from clarion.system.data_directory import DataDirectory
from clarion.system.sealed_files import read_files, seal_files

KEYS = "keys.sealed"


async def backup(
    target: Path,
    /,
    *,
    with_keys: Switch = False,
    passphrase_file: Path | None = None,
    **settings: SettingFlags,
) -> None:
    """Back up the database.

    Parameters
    ----------
    target
        The file to write, which must not exist; or a directory, in which it is named after the
        time.
    with_keys
        Add master.key, first-run.json, tls and provider-keys, encrypted with a passphrase. Without
        it, back them up separately.
    passphrase_file
        A file with the passphrase. Default: the command asks for it.

    """
    loaded, began = load_settings(settings), time.monotonic()
    passphrase = read_passphrase(passphrase_file, is_new=True) if with_keys else None
    path = _name(target)
    try:
        with ArchiveWriter(path) as archive:
            if passphrase is not None:
                with archive.add(KEYS) as write:
                    write(seal_files(read_files(loaded.data), passphrase))
            manifest = await _back_up(loaded, archive, path)
            archive.finish(manifest, _find_sealer(loaded))
    except OSError as error:
        raise CommandFailed(f"Cannot write {path}: {error.strerror}.") from error
    _report(manifest, path, time.monotonic() - began)
    await _record(loaded, manifest, path)


async def _record(settings: Settings, manifest: Manifest, path: Path) -> None:
    """Add an entry to the audit log, unless that would change more of the database."""
    try:
        is_current = not find_missing(load(manifest.engine), manifest.migrations)
        if not is_current or not DataDirectory(settings.data).master_key.exists():
            raise CommandFailed("That needs master.key, and all migrations.")
        async with open_stores(settings) as stores:
            await record_finished(stores.audit_log, file=path.name, rows=str(manifest.rows))
    except ClarionError as error:  # the file is complete all the same
        print(f"The audit log has no entry of it. {error.detail}")


def _find_sealer(settings: Settings) -> Callable[[bytes], bytes] | None:
    """Return what seals a manifest; None without the master key."""
    directory = DataDirectory(settings.data)
    if not directory.master_key.exists():
        print("The backup is not sealed: master.key is not here.")
        return None
    return partial(make_seal, directory.read_master_keys()[0])


def _name(target: Path) -> Path:
    if not target.is_dir():
        return target
    moment = to_rfc3339(SystemClock().now()).partition(".")[0].replace(":", "").replace("-", "")
    return target / f"clarion-{moment}Z.backup"


async def _back_up(settings: Settings, archive: ArchiveWriter, path: Path) -> Manifest:
    if database := sqlite_path(settings.database_url):
        _check_exists(database)
        return await _back_up_sqlite(database, archive, path)
    return await _back_up_postgres(settings.database_url, archive)


def _check_exists(database: str) -> None:
    refuse_moved(Path(database))
    if not Path(database).exists():
        raise StartError(f"There is no database {database}. Name it with --data or --database.")


async def _back_up_sqlite(database: str, archive: ArchiveWriter, path: Path) -> Manifest:
    # Before the copy begins: it includes everything committed by then.
    as_of = SystemClock().now()
    with (
        show_progress("Copying", "Checking and packing") as (copying, packing),
        sqlite.copy(database, path, copying) as copied,
    ):
        sqlite.pack(copied, archive, packing)
        return Manifest(
            format=FORMAT,
            engine="sqlite",
            clarion_version=__version__,
            as_of=to_rfc3339(as_of),
            migrations=sqlite.list_migrations(copied),
            tables=sqlite.list_tables(copied),
            master_keys=await _count_keys(partial(fetch_sqlite, copied)),
            members=archive.members,
        )


async def _back_up_postgres(url: str, archive: ArchiveWriter) -> Manifest:
    async with postgres.open_snapshot(url) as snapshot:
        with show_progress("Copying tables") as (copying,):
            tables = await snapshot.pack(archive, copying)
        return Manifest(
            format=FORMAT,
            engine="postgres",
            clarion_version=__version__,
            as_of=to_rfc3339(snapshot.as_of),
            migrations=await snapshot.list_migrations(),
            tables=tables,
            master_keys=await _count_keys(partial(fetch_postgres, snapshot.connection)),
            members=archive.members,
        )


async def _count_keys(fetch: Fetch) -> dict[str, int]:
    counts = await count_keys(fetch)
    return {key_id.hex(): count for key_id, count in counts.items()}


def _report(manifest: Manifest, path: Path, seconds: float) -> None:
    size = path.stat().st_size
    print(
        f"Backed up {count(manifest.rows, 'row')} of {count(len(manifest.tables), 'table')} "
        f"to {path}"
    )
    print(f"As of {manifest.as_of}; {size:,} bytes, in {seconds:.1f} s.")
    if KEYS in manifest.members:
        print("It has master.key and the other keys, encrypted with the passphrase.")
    else:
        print("It does not have master.key. Back that up separately: it cannot be created again.")
