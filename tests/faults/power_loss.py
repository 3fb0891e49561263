"""Power loss: what SQLite asks of the disk is recorded, and the disk rebuilt as a cut leaves it.

`RecordingVfs` notes every operation and passes it on to the real file system, the shared memory
of the WAL included. `Disk` plays the operations back and gives the files as they are found after
the power went. What it assumes of a disk is the least that SQLite asks of one:

* A sync makes durable all earlier writes and truncations of that file, and nothing else.
* Of what was not synced, any 512-byte sectors may survive and any may not, whatever their order;
  a sector that survives holds the bytes of its write and leaves its other bytes as they were.
* That a file was made or deleted is durable only when its directory is synced: SQLite does so at
  the first sync of a journal or WAL that it opened to create, and at a delete that asks for it.
  Until then a new file may be gone, and a deleted one may be back with what it last held.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import apsw

SECTOR_BYTES = 512
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL

Image = dict[str, bytes]


class Action(Enum):
    """What was asked of the disk."""

    CREATE = auto()
    WRITE = auto()
    TRUNCATE = auto()
    SYNC = auto()
    DELETE = auto()
    SYNC_DIRECTORY = auto()


class Operation(NamedTuple):
    """One operation; `offset` is the new size of a truncated file."""

    action: Action
    file: str
    offset: int = 0
    data: bytes = b""


class RecordingVfs(apsw.VFS):
    """The file system below, with a record of what it was asked to change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: list[Operation] = []
        super().__init__(name, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unregister()

    def record(self, action: Action, path: str, offset: int = 0, data: bytes = b"") -> None:
        self.operations.append(Operation(action, Path(path).name, offset, data))

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if not Path(path).exists():
            self.record(Action.CREATE, path)
        return _RecordingFile(self, name, path, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's own
        super().xDelete(filename, syncdir)
        self.record(Action.DELETE, filename)
        if syncdir:
            self.record(Action.SYNC_DIRECTORY, filename)


class _RecordingFile(apsw.VFSFile):
    def __init__(
        self,
        vfs: RecordingVfs,
        name: str | apsw.URIFilename | None,
        path: str,
        flags: list[int],
    ) -> None:
        self._vfs = vfs
        self._path = path
        creates_journal = flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _JOURNALS
        self._syncs_directory = bool(creates_journal)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        super().xWrite(data, offset)
        self._vfs.record(Action.WRITE, self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        super().xTruncate(newsize)
        self._vfs.record(Action.TRUNCATE, self._path, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._vfs.record(Action.SYNC, self._path)
        if self._syncs_directory:
            self._syncs_directory = False
            self._vfs.record(Action.SYNC_DIRECTORY, self._path)


class Survival:
    """Which of the changes that were not synced survive."""

    def __init__(self, name: str, survives: Callable[[], bool]) -> None:
        self.name = name
        self.survives = survives


def nothing() -> Survival:
    """The power went, and the disk had kept nothing back."""
    return Survival("drop", lambda: False)


def everything() -> Survival:
    """The process was killed, and the machine went on."""
    return Survival("kill", lambda: True)


def torn(seed: str) -> Survival:
    """The power went, and chance had written some sectors, of few to nearly all."""
    chance = random.Random(seed)
    share = chance.random()
    return Survival(f"torn, seed {seed!r}", lambda: chance.random() < share)


class _File:
    """The content of one file: what is durable, and what was asked since."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self._pending: list[Operation] = []

    def change(self, operation: Operation) -> None:
        self._pending.append(operation)

    def sync(self) -> None:
        self._apply(self.durable, everything())
        self._pending.clear()

    def image(self, survival: Survival) -> bytes:
        content = bytearray(self.durable)
        self._apply(content, survival)
        return bytes(content)

    def _apply(self, content: bytearray, survival: Survival) -> None:
        for operation in self._pending:
            if operation.action is Action.WRITE:
                _write(content, operation, survival)
            elif survival.survives():
                _resize(content, operation.offset)


def _write(content: bytearray, operation: Operation, survival: Survival) -> None:
    for start, part in _sectors(operation):
        if survival.survives():
            if start > len(content):
                _resize(content, start)
            content[start : start + len(part)] = part


def _sectors(operation: Operation) -> Iterator[tuple[int, bytes]]:
    """The parts of a write, cut where the sectors of the disk are."""
    start, end = operation.offset, operation.offset + len(operation.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, operation.data[start - operation.offset : stop - operation.offset]
        start = stop


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class Disk:
    """The disk after the operations played so far; `image` is what a crash now would leave."""

    def __init__(self) -> None:
        self._open: dict[str, _File] = {}
        self._directory: dict[str, _File] = {}
        self._pending: list[tuple[str, _File | None]] = []

    def play(self, operation: Operation) -> None:
        match operation.action:
            case Action.CREATE:
                self._open[operation.file] = _File()
                self._pending.append((operation.file, self._open[operation.file]))
            case Action.DELETE:
                del self._open[operation.file]
                self._pending.append((operation.file, None))
            case Action.WRITE | Action.TRUNCATE:
                self._open[operation.file].change(operation)
            case Action.SYNC:
                self._open[operation.file].sync()
            case Action.SYNC_DIRECTORY:
                self._directory = self._entries(everything())
                self._pending.clear()

    def image(self, survival: Survival) -> Image:
        entries = self._entries(survival)
        return {name: file.image(survival) for name, file in entries.items()}

    def _entries(self, survival: Survival) -> dict[str, _File]:
        entries = dict(self._directory)
        for name, file in self._pending:
            if survival.survives():
                entries.pop(name, None)
                if file is not None:
                    entries[name] = file
        return entries


def digest_of(image: Image) -> bytes:
    """Identify an image: many crashes leave the same, and one check will do for those."""
    digest = hashlib.sha256()
    for name, content in sorted(image.items()):
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.digest()


def write_image(image: Image, folder: Path) -> None:
    """Make the folder hold the image and nothing else."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in image.items():
        (folder / name).write_bytes(content)
