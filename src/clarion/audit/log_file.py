"""The chain as a file: lines of JSON, readable only by this account, and only ever appended to.

The file follows the chain: entries missing after its last line are appended. So it needs no other
state, a crash loses nothing, and it can be moved away at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from clarion.audit.model import Entry
from clarion.clock import to_rfc3339

# Then the file is renamed to `….1`, the former one to `….2`, and so on.
ROTATED_BYTES = 64 * 1024 * 1024
KEPT_FILES = 20
# A line has at most a few kilobytes.
_TAIL_BYTES = 64 * 1024
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class LogFile:
    """Appends entries to a file; it is opened each time, so that others can rename it."""

    def __init__(self, path: Path, *, rotated_bytes: int = ROTATED_BYTES) -> None:
        self.path = path
        self._rotated_bytes = rotated_bytes

    def find_last(self) -> Entry | None:
        """Return the last entry in the file, or in the one that was renamed last."""
        for path in self.list_files():
            if last := _find_last(_read_tail(path)):
                return last
        return None

    def list_files(self) -> list[Path]:
        """Return the file and those that were renamed, the newest first."""
        others = [each for each in self.path.parent.glob(f"{self.path.name}?*") if each.is_file()]
        newest_first = sorted(others, key=lambda each: each.stat().st_mtime_ns, reverse=True)
        return [each for each in (self.path, *newest_first) if each.exists()]

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries that are not in the file yet; they are durable when this returns."""
        with self._open_alone() as file:
            tail = _read_tail(self.path)
            # If it has just been renamed, the last entry is in the other one.
            last = _find_last(tail) or self.find_last()
            written = last.sequence or 0 if last else 0
            new = [write_line(each) for each in entries if (each.sequence or 0) > written]
            # A line that was cut off stays as it is; the next entry starts a new line.
            start = b"\n" if tail and not tail.endswith(b"\n") else b""
            if new:
                file.write(start + b"".join(new))
                file.flush()
                os.fsync(file.fileno())
            if os.fstat(file.fileno()).st_size >= self._rotated_bytes:
                self._rotate()

    def _open_alone(self) -> BinaryIO:
        """Open the file and lock it: another process with the same directory may be appending.

        If that one has renamed the file while we waited for the lock, there is another one.
        """
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            file = os.fdopen(descriptor, "rb+")
            fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    return file
            file.close()

    def _rotate(self) -> None:
        for number in range(KEPT_FILES, 0, -1):
            newer = Path(f"{self.path}.{number - 1}") if number > 1 else self.path
            if newer.exists():
                newer.replace(f"{self.path}.{number}")


def write_line(entry: Entry) -> bytes:
    """Return an entry as a line; the time is in it twice, once for people."""
    fields = msgspec.to_builtins(entry)
    return _encode({"time": to_rfc3339(entry.created_at), **fields}) + b"\n"


def read_line(line: bytes) -> Entry | None:
    """Return the entry of a line; None if it is not one, as when a crash cut it off."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def read_entries(path: Path) -> Iterator[tuple[int, Entry | None]]:
    """Yield the number and the entry of each line of a file; None if a line is not an entry."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield number, read_line(line)


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return file.read()


def _find_last(tail: bytes) -> Entry | None:
    """Return the last entry of a text that may begin and end within a line."""
    for line in reversed(tail.split(b"\n")):
        if line and (entry := read_line(line)):
            return entry
    return None
