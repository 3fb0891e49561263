"""The data folder: where the keys, certificates and the database of one installation live."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from clarion.errors import StartError

if TYPE_CHECKING:
    from typing import IO

_KEY_BYTES = 32


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it is there whole or not at all."""
    _write(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """Write a file that everyone may read; it is there whole or not at all."""
    _write(path, content, 0o644)


def write_private_once(path: Path, content: bytes) -> None:
    """Write a private file if there is none yet. Of many who try at once, one succeeds."""
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


def _sync(folder: Path) -> None:
    """Make the names in a folder as durable as the files are."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DataFolder:
    """The folder of one installation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tls = path / "tls"
        self.provider_keys = path / "provider-keys"
        self.first_run = path / "first-run.json"
        self._master_key = path / "master.key"
        self._lock = path / "clarion.lock"

    def ensure(self) -> None:
        """Make the folders; they and what is in them are for this account alone."""
        try:
            for folder in (self.path, self.tls, self.provider_keys):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            msg = (
                f"Cannot make the data folder {self.path}: {error.strerror}. "
                "Choose another with --data, or give this account the right to write there."
            )
            raise StartError(msg) from error
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            msg = (
                f"Cannot read and write the data folder {self.path}. Choose another with --data, "
                f"or make it yours: chown -R $(id -un) {self.path}"
            )
            raise StartError(msg)

    def master_key(self) -> bytes:
        """Return the key of the vault, made once."""
        try:
            if not self._master_key.exists():
                write_private_once(self._master_key, secrets.token_bytes(_KEY_BYTES))
            key = self._master_key.read_bytes()
        except OSError as error:
            msg = f"Cannot read {self._master_key} ({error.strerror}). Make it yours with chown."
            raise StartError(msg) from error
        if len(key) != _KEY_BYTES:
            msg = f"{self._master_key} must have {_KEY_BYTES} bytes. Restore it from a backup."
            raise StartError(msg)
        return key

    def lock(self) -> IO[bytes]:
        """Keep a second server off this folder for as long as the returned file is open."""
        file = self._lock.open("ab+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read(20).decode(errors="replace").strip() or "unknown"
            file.close()
            msg = (
                f"Another Clarion (process {owner}) serves the data folder {self.path}. "
                "Stop it first, or choose another folder with --data."
            )
            raise StartError(msg) from error
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        return file
