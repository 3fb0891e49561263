"""The data directory: keys, certificates and the database of one installation."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from clarion.errors import StartError
from clarion.telemetry.logs import get_logger

_KEY_BYTES = 32
# One, and the one that replaces it.
_KEYS_LIMIT = 2
# New files and directories are for this account alone.
PRIVATE_UMASK = 0o077
# The files of a SQLite database all have its permissions.
_DATABASE_ENDS = ("", "-wal", "-shm", "-journal")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically."""
    _write_beside(path, content).replace(path)
    _sync(path.parent)


def write_private_once(path: Path, content: bytes) -> None:
    """Write a private file unless it exists. Of several processes at once, one succeeds."""
    with contextlib.suppress(FileExistsError):
        publish_once(_write_beside(path, content), path)


def publish_once(temporary: Path, path: Path) -> None:
    """Give a file that is durable its name, and remove the other; `FileExistsError` if it is taken.

    Of several processes at once, one succeeds.
    """
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError(path) from None
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        _sync(path.parent)


def new_master_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


def make_private(paths: Iterable[Path]) -> None:
    """Remove permissions of other accounts from files and directories, and log which had some.

    Files of another account are not changed: a mounted volume often has such files.
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


def split_keys(content: bytes) -> tuple[bytes, ...]:
    """Return the keys in the file of the master key."""
    return tuple(content[n : n + _KEY_BYTES] for n in range(0, len(content), _KEY_BYTES))


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.tls = path / "tls"
        self.provider_keys = path / "provider-keys"
        self.first_run = path / "first-run.json"
        self.master_key = path / "master.key"
        self._lock = path / "clarion.lock"
        self._for_tests = path / "for-tests"
        # Not the file of the keys itself, which is replaced as a whole.
        self._key_lock = path / "master.key.lock"
        self._set_up_lock = path / "set-up.lock"

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
        yield from (self.master_key, self.first_run)
        yield from (self._lock, self._key_lock, self._set_up_lock)
        yield from list_database_files(str(self.path / "clarion.db"))
        yield from self.list_other_first_runs()
        yield from self.path.glob("device-listen*.json")
        yield from self.path.glob("audit.log*")
        for directory in (self.tls, self.provider_keys):
            with contextlib.suppress(OSError):
                yield from directory.iterdir()

    def list_other_first_runs(self) -> Iterator[Path]:
        """Yield the files with the first keys of databases that were used here before."""
        yield from sorted(self.path.glob("first-run-*.json"))

    def ensure_master_keys(self) -> tuple[bytes, ...]:
        """Return the keys of the vault; the first one is created once."""
        try:
            if not self.master_key.exists():
                write_private_once(self.master_key, new_master_key())
        except OSError as error:
            raise StartError(
                f"Cannot write {self.master_key} ({error.strerror}). Change its owner with chown."
            ) from error
        return self.read_master_keys()

    def read_master_keys(self) -> tuple[bytes, ...]:
        """Return the keys of the vault.

        The first seals and opens. A second one only opens: the one that `clarion vault rotate`
        replaces.
        """
        try:
            content = self.master_key.read_bytes()
        except FileNotFoundError as error:
            raise StartError(
                f"There is no {self.master_key}. `clarion init` creates it; if the database has "
                "secrets, restore it from a backup."
            ) from error
        except OSError as error:
            raise StartError(
                f"Cannot read {self.master_key} ({error.strerror}). Change its owner with chown."
            ) from error
        keys = split_keys(content)
        if not 0 < len(keys) <= _KEYS_LIMIT or len(content) % _KEY_BYTES:
            raise StartError(
                f"{self.master_key} must have {_KEY_BYTES} bytes, or {_KEYS_LIMIT * _KEY_BYTES} "
                "while the key is replaced. Restore it from a backup."
            )
        return keys

    def write_master_keys(self, keys: Sequence[bytes]) -> None:
        """Replace the keys of the vault; they are durable when this returns."""
        write_private(self.master_key, b"".join(keys))

    def reserve(self, *, for_tests: bool) -> None:
        """Make sure that a directory is used either with a test clock or with the system clock.

        In the future, all stored data expires. So a server with a test clock must never use the
        data of a server with the system clock, nor the other way round.
        """
        if for_tests and not self._lock.exists():  # it has never been served
            self._for_tests.touch(mode=0o600)
        if for_tests != self._for_tests.exists():
            raise StartError(
                f"{self.path} was served without --clock test, and moving the clock would expire "
                "its data. Choose another directory with --data."
                if for_tests
                else f"{self.path} is for tests: its clock was moved. Start with --clock test, or "
                "choose another directory with --data."
            )

    @contextlib.contextmanager
    def use_keys(self) -> Iterator[None]:
        """Hold the keys: as long as somebody does, they are not replaced."""
        with self._lock_keys(fcntl.LOCK_SH, "`clarion vault rotate` is running. Wait for its end."):
            yield

    @contextlib.contextmanager
    def replace_keys(self) -> Iterator[None]:
        """Hold the keys alone, in order to replace them."""
        in_use = (
            f"A Clarion server or command uses {self.master_key}. Stop the server, wait for "
            "other commands, and try again."
        )
        with self._lock_keys(fcntl.LOCK_EX, in_use):
            yield

    @contextlib.contextmanager
    def _lock_keys(self, how: int, refused: str) -> Iterator[None]:
        with self._key_lock.open("ab") as file:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except OSError as error:
                raise StartError(refused) from error
            yield

    @contextlib.contextmanager
    def set_up_alone(self) -> Iterator[None]:
        """Wait for other processes that set up an installation here, and lock them out."""
        self._set_up_lock.touch(0o600)
        with self._set_up_lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

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
