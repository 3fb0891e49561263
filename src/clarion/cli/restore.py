"""`clarion restore`: a backup into a place where nothing is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clarion.access.vault import key_id_of
from clarion.app.stores import open_stores
from clarion.audit.log_file import LogFile
from clarion.cli.backup import KEYS
from clarion.cli.backup_seal import is_sealed
from clarion.cli.erasure_replay import replay_erasures
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.passphrase import read_passphrase
from clarion.cli.printing import show_progress
from clarion.clock import SystemClock
from clarion.errors import CommandFailed, StartError, count
from clarion.settings import Settings
from clarion.store.backups import postgres, sqlite
from clarion.store.backups.archive import Archive, Manifest
from clarion.store.migrations.plan import find_missing, load
from clarion.store.opening import sqlite_path
from clarion.system.data_directory import (
    DataDirectory,
    list_database_files,
    split_keys,
    write_private,
)
from clarion.system.sealed_files import open_files

# Of the sealed keys, which are read into memory.
_KEYS_BYTES = 16 << 20


async def restore(
    source: Path,
    /,
    *,
    with_keys: Switch = False,
    passphrase_file: Path | None = None,
    audit_log: Sequence[Path] = (),
    accept_unsealed: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Restore a backup. Its seal and checksums are verified before anything is changed.

    Parameters
    ----------
    source
        The file that `clarion backup` wrote.
    with_keys
        Restore the keys of the backup, too.
    passphrase_file
        A file with their passphrase. Default: the command asks for it.
    audit_log
        An audit log with entries from after the backup: users who were erased or deleted since
        are erased or deleted again. Those in the data directory are used in any case. Can be
        repeated.
    accept_unsealed
        Restore a backup whose seal is missing or cannot be verified.

    """
    loaded, began = load_settings(settings), time.monotonic()
    with Archive(source) as archive:
        _check_archive(archive, loaded)
        keys = _open_keys(archive, passphrase_file) if with_keys else {}
        directory = DataDirectory(loaded.data)
        directory.ensure()
        with _claim(directory, loaded):
            _check_keys(directory, archive.manifest, keys)
            if not accept_unsealed:
                _check_seal(archive, directory, keys)
            for name, content in keys.items():
                write_private(directory.path / name, content)
            await _restore(archive, loaded)
            replaced = _move_audit_log(loaded)
    _report(archive.manifest, loaded, time.monotonic() - began)
    await _replay(directory, loaded, [*replaced, *audit_log])


def _check_archive(archive: Archive, settings: Settings) -> None:
    """Refuse a backup of another engine or of a newer release."""
    engine = "sqlite" if sqlite_path(settings.database_url) else "postgres"
    if archive.manifest.engine != engine:
        raise StartError(
            f"{archive.path} is a backup of {archive.manifest.engine}, and --database is {engine}. "
            "Restore it on its own engine; `clarion migrate-data` copies to the other one."
        )
    find_missing(load(engine), archive.manifest.migrations)


def _open_keys(archive: Archive, passphrase_file: Path | None) -> dict[str, bytes]:
    if (member := archive.manifest.members.get(KEYS)) is None:
        raise StartError(f"{archive.path} has no keys: it was made without --with-keys.")
    if member.size > _KEYS_BYTES:
        raise CommandFailed(f"The keys in {archive.path} are larger than any that were written.")
    passphrase = read_passphrase(passphrase_file, is_new=False)
    return open_files(b"".join(archive.read(KEYS)), passphrase)


@contextlib.contextmanager
def _claim(directory: DataDirectory, settings: Settings) -> Iterator[None]:
    """Make sure that no server uses the target, and that it has no database."""
    path = sqlite_path(settings.database_url)
    if path is None:
        yield
        return
    with directory.lock(), directory.replace_keys():
        if found := [each for each in list_database_files(path) if each.exists()]:
            raise StartError(
                f"{found[0]} exists already. A backup is restored where nothing is: move it away "
                "first, or choose another directory with --data."
            )
        yield


def _check_keys(directory: DataDirectory, manifest: Manifest, keys: dict[str, bytes]) -> None:
    """Refuse a master key that cannot decrypt the secrets of the backup."""
    for name, content in keys.items():
        path = directory.path / name
        if path.exists() and path.read_bytes() != content:
            raise StartError(f"{path} exists already, and is another than in the backup.")
    if directory.master_key.exists():
        ours = {key_id_of(each).hex() for each in directory.read_master_keys()}
        if missing := {each for each in manifest.master_keys if each} - ours:
            raise StartError(
                f"The secrets of the backup are encrypted with the master key {min(missing)}, and "
                f"{directory.master_key} has {', '.join(sorted(ours))}. Replace it by the "
                "master.key of the time of the backup."
            )


def _check_seal(archive: Archive, directory: DataDirectory, keys: dict[str, bytes]) -> None:
    """Refuse a backup that somebody without the master key has changed, or made."""
    ours = list(directory.read_master_keys()) if directory.master_key.exists() else []
    ours += split_keys(keys.get(directory.master_key.name, b""))
    if not ours:
        print("Its seal was not verified: master.key is not here.")
        return
    seal = archive.read_seal()
    if seal is not None and is_sealed(ours, archive.written, seal):
        return
    why = "has no seal" if seal is None else "has a seal of another master key, or was changed"
    raise CommandFailed(
        f"{archive.path} {why}: anybody may have made it. Nothing was changed. If you trust it, "
        "give --accept-unsealed."
    )


async def _restore(archive: Archive, settings: Settings) -> None:
    with show_progress("Restoring") as (restoring,):
        if path := sqlite_path(settings.database_url):
            sqlite.restore(archive, Path(path), restoring)
        else:
            await postgres.restore(archive, settings.database_url, restoring)


def _move_audit_log(settings: Settings) -> list[Path]:
    """Move audit logs of another database aside, and return where they are now."""
    path = settings.audit_log_path
    files = LogFile(path).list_files() if path else []
    if not files:
        return []
    aside = files[0].parent / f"before-restore-{SystemClock().now()}"
    try:
        aside.mkdir(mode=0o700)
        return [each.rename(aside / each.name) for each in files]
    except OSError as error:
        raise CommandFailed(
            f"The backup is restored, but {files[0]} cannot be moved aside ({error.strerror}). "
            "Move it before the server starts."
        ) from error


def _report(manifest: Manifest, settings: Settings, seconds: float) -> None:
    print(
        f"Restored {count(manifest.rows, 'row')} of {count(len(manifest.tables), 'table')} in "
        f"{seconds:.1f} s, as of {manifest.as_of}."
    )
    print("What was accepted later is not in it.")
    if not DataDirectory(settings.data).master_key.exists():
        names = ", ".join(sorted(filter(None, manifest.master_keys))) or "of the backup"
        print(f"Copy the master.key {names} to {settings.data} before you start the server.")


async def _replay(directory: DataDirectory, settings: Settings, logs: Sequence[Path]) -> None:
    if not logs:
        print("Without a newer audit log, users who were erased since then exist again.")
        return
    if not directory.master_key.exists():
        names = " ".join(map(str, logs))
        print(f"Then erase again the users erased since: clarion user replay-erasures {names}")
        return
    async with open_stores(settings) as stores:
        print(await replay_erasures(stores, logs, settings.deleted_user_days))
    print(f"This was done by the audit log in {logs[0].parent}.")
