"""The data directory: keys, certificates and the database of one installation."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from typing import IO

from clarion.errors import StartError

_KEY_BYTES = 32


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically."""
    _write(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """Write a file that everyone can read, atomically."""
    _write(path, content, 0o644)


def write_private_once(path: Path, content: bytes) -> None:
    """Write a private file unless it exists. Of several processes at once, one succeeds."""
    temporary = _write_beside(path, content, 0o600)
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(temporary)
    temporary.unlink()
    _sync(path.parent)


def _write(path: Path, content: bytes, mode: int) -> None:
    _write_beside(path, content, mode).replace(path)
    _sync(path.parent)


def _write_beside(path: Path, content: bytes, mode: int) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
