"""A disk that fails on command, below the SQLite of this process.

`FaultyVfs` fails syncs: no system call stands between SQLite and them that could be replaced.
`RefusingWrites` fails writes, by replacing the system call. An error of a Python VFS would not do:
apsw raises it from the commit even where SQLite means to carry on, as it does when a checkpoint
after the commit finds the disk full.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

# Names the file of orders; see `bad_disk/sitecustomize.py`.
ORDERS = "CLARION_TEST_DISK_ORDERS"
FULL = "full"
NO_SYNC = "no sync"


class FaultyVfs(apsw.VFS):
    """The file system below; what `before_sync` raises is the error of the disk."""

    def __init__(
        self, name: str, before_sync: Callable[[], None], *, is_default: bool = False
    ) -> None:
        self.name = name
        self.before_sync = before_sync
        self.below = apsw.vfs_names()[0]  # by name: "" would mean this one, once it is the default
        super().__init__(name, self.below, makedefault=is_default)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unregister()

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _FaultyFile(self, name, flags)


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, vfs: FaultyVfs, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._vfs = vfs
        super().__init__(vfs.below, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.before_sync()
        super().xSync(flags)


class FailingSync:
    """Fails the sync of that number, counted from one, and no other."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise sync_error()


def sync_error() -> Exception:
    return apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


class RefusingWrites:
    """Refuses writes for lack of space to files whose name `refuses` selects."""

    _PROTOTYPE = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int64,
        use_errno=True,
    )

    def __init__(self, refuses: Callable[[str], bool]) -> None:
        self.refused = 0
        self._refuses = refuses
        self._vfs = apsw.VFS("refusing-writes", apsw.vfs_names()[0])
        self._name, self._original = self._find_call()
        self._replacement = self._PROTOTYPE(self._write)

    def __enter__(self) -> Self:
        address = ctypes.cast(self._replacement, ctypes.c_void_p).value
        assert address is not None
        assert self._vfs.xSetSystemCall(self._name, address)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._vfs.xSetSystemCall(self._name, self._original)
        self._vfs.unregister()

    def _find_call(self) -> tuple[str, int]:
        """Which of the two a SQLite calls depends on how it was built; the other is missing."""
        for name in ("pwrite64", "pwrite"):
            if address := self._vfs.xGetSystemCall(name):
                return name, address
        raise LookupError("this SQLite writes by a call that is not known here")

    def _write(self, file: int, start: int, size: int, offset: int) -> int:
        if self._refuses(Path(f"/proc/self/fd/{file}").readlink().name):
            self.refused += 1
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return os.pwrite(file, ctypes.string_at(start, size), offset)


class SmallDisk:
    """Has space for so many more writes to the database and its WAL; None is unlimited."""

    def __init__(self) -> None:
        self.room: int | None = None

    def refuses(self, name: str) -> bool:
        if self.room is None or is_shared_memory(name):
            return False
        if self.room == 0:
            return True
        self.room -= 1
        return False


def is_shared_memory(name: str) -> bool:
    return name.endswith("-shm")


class Orders:
    """Commands for the disk of another process, in a file that both know."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def give(self, order: str) -> None:
        self._path.write_text(order)

    def withdraw(self) -> None:
        self._path.unlink()

    def refuses(self, name: str) -> bool:
        return self._order() == FULL and not is_shared_memory(name)

    def before_sync(self) -> None:
        if self._order() == NO_SYNC:
            raise sync_error()

    def _order(self) -> str:
        return self._path.read_text() if self._path.exists() else ""
