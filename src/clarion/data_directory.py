"""The data directory: keys, certificates and the database of one installation."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from clarion.errors import StartError
from clarion.telemetry.logs import get_logger

_KEY_BYTES = 32
# New files and directories are for this account alone.
PRIVATE_UMASK = 0o077
# The files beside a SQLite database have its permissions.
_DATABASE_ENDS = ("", "-wal", "-shm", "-journal")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically."""
    _write_beside(path, content).replace(path)
    _sync(path.parent)


def write_private_once(path: Path, content: bytes) -> None:
    """Write a private file unless it exists. Of several processes at once, one succeeds."""
    temporary = _write_beside(path, content)
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(temporary)
    temporary.unlink()
    _sync(path.parent)


def make_private(paths: Iterable[Path]) -> None:
    """Take the permissions of others from files and directories, and log which had some.

    What belongs to another account is left as it is: a mounted volume often does.
    """
    tightened, left = [], []
    for path in paths:
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) or not mode & PRIVATE_UMASK:
                continue
            if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:  # for everybody, like /tmp
                left.append(str(path))
                continue
            path.chmod(stat.S_IMODE(mode) & ~PRIVATE_UMASK)
            tightened.append(str(path))
        except FileNotFoundError:
            continue
        except OSError:
            left.append(str(path))
    if tightened:
        get_logger().warning("permissions_tightened", paths=tightened)
    if left:
        get_logger().warning("permissions_not_tightened", paths=left)


def list_database_files(path: str) -> Iterator[Path]:
    """Yield the files of a SQLite database, whether they exist or not."""
    yield from (Path(path + end) for end in _DATABASE_ENDS)


def _write_beside(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync(directory: Path) -> None:
    """Make the names in a directory as durable as the files."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.tls = path / "tls"
        self.provider_keys = path / "provider-keys"
        self.first_run = path / "first-run.json"
        self._master_key = path / "master.key"
        self._lock = path / "clarion.lock"

    def ensure(self) -> None:
        """Create the directories; only this account can read them."""
        try:
            for directory in (self.path, self.tls, self.provider_keys):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(
                f"Cannot create the data directory {self.path}: {error.strerror}. "
                "Choose another with --data, or give this account permission to write there."
            ) from error
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise StartError(
                f"Cannot read and write the data directory {self.path}. "
                f"Choose another with --data, or change its owner: chown -R $(id -un) {self.path}"
            )
        make_private(self._list_contents())

    def _list_contents(self) -> Iterator[Path]:
        """Yield what Clarion has here; there may be files of others in the directory."""
        yield from (self.path, self.tls, self.provider_keys)
        yield from (self._master_key, self.first_run, self._lock)
        yield from list_database_files(str(self.path / "clarion.db"))
        yield from self.path.glob("device-listen*.json")
        for directory in (self.tls, self.provider_keys):
            with contextlib.suppress(OSError):
                yield from directory.iterdir()

    def master_key(self) -> bytes:
        """Return the key of the vault; it is created once."""
        try:
            if not self._master_key.exists():
                write_private_once(self._master_key, secrets.token_bytes(_KEY_BYTES))
            key = self._master_key.read_bytes()
        except OSError as error:
            raise StartError(
                f"Cannot read {self._master_key} ({error.strerror}). Change its owner with chown."
            ) from error
        if len(key) != _KEY_BYTES:
            raise StartError(
                f"{self._master_key} must have {_KEY_BYTES} bytes. Restore it from a backup."
            )
        return key

    def lock(self) -> IO[bytes]:
        """Lock the directory against a second server until the returned file is closed."""
        file = self._lock.open("ab+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read(20).decode(errors="replace").strip() or "unknown"
            file.close()
            raise StartError(
                f"Another Clarion server (process {owner}) uses the data directory {self.path}. "
                "Stop it first, or choose another directory with --data."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        return file
