"""A disk that fails to order: it asks before it writes or syncs, and may be told to fail."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import apsw

Act = Literal["write", "sync"]

# Names the file of orders; see `bad_disk/sitecustomize.py`.
ORDERS = "CLARION_TEST_DISK_ORDERS"
FULL = "full"
NO_SYNC = "no sync"


class FaultyVfs(apsw.VFS):
    """Asks `before` ahead of each write and sync; what that raises is the error of the disk."""

    def __init__(
        self, name: str, before: Callable[[Act], None], *, is_default: bool = False
    ) -> None:
        self.name = name
        self.before = before
        self.below = apsw.vfs_names()[0]  # by name: "" would mean this one, once it is the default
        super().__init__(name, self.below, makedefault=is_default)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
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

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.before("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.before("sync")
        super().xSync(flags)


class FailingSync:
    """Fails the sync of that number, counted from one, and no other."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, act: Act) -> None:
        if act == "sync":
            self.left -= 1
            if self.left == 0:
                raise sync_error()


class SmallDisk:
    """Has room for so many more writes; None is without end."""

    def __init__(self) -> None:
        self.room: int | None = None

    def __call__(self, act: Act) -> None:
        if act != "write" or self.room is None:
            return
        if self.room == 0:
            raise apsw.FullError
        self.room -= 1


class FullSharedMemory:
    """Lets no shared memory of a WAL grow while the block lasts.

    SQLite grows it below any VFS that Python can be, so this one replaces a system call.
    """

    _CALL = "pwrite64"
    _PROTOTYPE = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
    )

    def __init__(self) -> None:
        self.refused = 0
        self._vfs = apsw.VFS("full-shared-memory", apsw.vfs_names()[0])
        self._original = self._vfs.xGetSystemCall(self._CALL)
        self._replacement = self._PROTOTYPE(self._write)

    def __enter__(self) -> Self:
        address = ctypes.cast(self._replacement, ctypes.c_void_p).value
        assert address is not None
        assert self._vfs.xSetSystemCall(self._CALL, address)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._original is not None
        self._vfs.xSetSystemCall(self._CALL, self._original)
        self._vfs.unregister()

    def _write(self, file: int, start: int, size: int, offset: int) -> int:
        if Path(f"/proc/self/fd/{file}").readlink().name.endswith("-shm"):
            self.refused += 1
            return -1
        return os.pwrite(file, ctypes.string_at(start, size), offset)


def sync_error() -> Exception:
    return apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


class Orders:
    """What the disk of another process is to do, by a file that both know."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def give(self, order: str) -> None:
        self._path.write_text(order)

    def withdraw(self) -> None:
        self._path.unlink()

    def obey(self, act: Act) -> None:
        order = self._path.read_text() if self._path.exists() else ""
        if order == FULL and act == "write":
            raise apsw.FullError
        if order == NO_SYNC and act == "sync":
            raise sync_error()
