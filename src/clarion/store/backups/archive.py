"""The file of a backup: a ZIP archive whose last bytes are the checksum of all others.

Every program that reads ZIP files can list and unpack it. The manifest is written last, when
everything is known; the checksum is the comment of the archive, so a bit that flips anywhere is
found before anything is restored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self

import msgspec

from clarion.errors import CommandFailed, StartError
from clarion.system.data_directory import publish_once

FORMAT = 1
MANIFEST = "manifest.json"
SEAL = "manifest.seal"
CHUNK_BYTES = 1 << 20
_CHECKSUM = b"sha256:"
_CHECKSUM_BYTES = len(_CHECKSUM) + 2 * hashlib.sha256().digest_size
_MANIFEST_BYTES = 1 << 20
_SEAL_BYTES = 1 << 10
# More would take much longer, and hardly save anything.
_LEVEL = 1

OnProgress = Callable[[int, int], None]


class Member(msgspec.Struct, frozen=True):
    """One file inside of a backup."""

    size: int
    sha256: str


class Table(msgspec.Struct, frozen=True):
    """The number of rows of a table, and the columns that are copied."""

    rows: int
    columns: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True):
    """The description of a backup, which has everything that was accepted before `as_of`."""

    format: int
    engine: str
    clarion_version: str
    as_of: str
    # Each as its number and checksum.
    migrations: tuple[tuple[int, str], ...]
    tables: dict[str, Table]
    # How many values are sealed, by the id of their master key.
    master_keys: dict[str, int]
    members: dict[str, Member]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables.values())


class ArchiveWriter:
    """Writes a backup under a temporary name; `finish` gives it its own.

    A failure before that leaves nothing behind.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        self.members: dict[str, Member] = {}

    def __enter__(self) -> Self:
        if self._target.exists():
            raise StartError(f"{self._target} exists already. Choose another name.")
        try:
            descriptor = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise StartError(f"Cannot write to {self._target.parent}: {error.strerror}.") from error
        self._file = os.fdopen(descriptor, "w+b")
        self._zip = zipfile.ZipFile(
            self._file, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=_LEVEL
        )
        return self

    def __exit__(self, *_error: object) -> None:
        # An archive that is not complete is not worth its end.
        self._zip.fp = None
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def add(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """Yield what writes a member."""
        digest, size = hashlib.sha256(), 0
        with self._zip.open(name, "w", force_zip64=True) as member:

            def write(data: bytes) -> None:
                nonlocal size
                digest.update(data)
                size += len(data)
                member.write(data)

            yield write
        self.members[name] = Member(size, digest.hexdigest())

    def finish(self, manifest: Manifest, seal: Callable[[bytes], bytes] | None = None) -> None:
        """Add the manifest, its seal and the checksum.

        The file gets its name when it is durable.
        """
        written = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        self._zip.writestr(MANIFEST, written)
        if seal is not None:
            self._zip.writestr(SEAL, seal(written))
        self._zip.comment = bytes(_CHECKSUM_BYTES)
        self._zip.close()
        checksum = _sum(self._file, self._file.seek(0, os.SEEK_END))
        self._file.seek(-_CHECKSUM_BYTES, os.SEEK_END)
        self._file.write(checksum)
        self._file.flush()
        os.fsync(self._file.fileno())
        try:
            publish_once(self._temporary, self._target)
        except FileExistsError as error:
            raise StartError(f"{self._target} exists already. Choose another name.") from error


class Archive:
    """A backup whose every byte was verified when it was opened.

    `written` is the manifest as it was sealed. A checksum alone can be made by anybody.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise StartError(f"Cannot read {self.path}: {error.strerror}.") from error
        try:
            self.manifest = self._verify()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._zip.close()
        self._file.close()

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the content of a member; `CommandFailed` if it is not as written."""
        expected, digest = self.manifest.members[name], hashlib.sha256()
        left = expected.size
        with self._zip.open(name) as member:
            while data := member.read(CHUNK_BYTES):
                left -= len(data)
                if left < 0:  # it may be as large as somebody likes
                    break
                digest.update(data)
                yield data
        if left or digest.hexdigest() != expected.sha256:
            raise CommandFailed(f"{name} in {self.path} is not as it was written.")

    def _verify(self) -> Manifest:
        size = self._file.seek(0, os.SEEK_END)
        if size <= _CHECKSUM_BYTES:
            raise CommandFailed(f"{self.path} is not a backup of Clarion, or not complete.")
        expected = _sum(self._file, size)
        self._file.seek(-_CHECKSUM_BYTES, os.SEEK_END)
        found = self._file.read()
        if not found.startswith(_CHECKSUM):
            raise CommandFailed(f"{self.path} is not a backup of Clarion, or not complete.")
        if found != expected:
            raise CommandFailed(
                f"{self.path} is damaged: its checksum is not the one that was written. Nothing "
                "was changed. Take another copy, or an older backup."
            )
        try:
            self._zip = zipfile.ZipFile(self._file)
            return self._read_manifest()
        except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError) as error:
            raise CommandFailed(f"{self.path} is not a backup of Clarion.") from error

    def read_seal(self) -> bytes | None:
        """Return the seal of the manifest, or None if it has none."""
        if SEAL not in self._zip.namelist():
            return None
        return self._read_start(SEAL, _SEAL_BYTES)

    def _read_start(self, name: str, limit: int) -> bytes:
        with self._zip.open(name) as member:
            return member.read(limit)

    def _read_manifest(self) -> Manifest:
        content = self.written = self._read_start(MANIFEST, _MANIFEST_BYTES)
        version = msgspec.json.decode(content, type=dict[str, object]).get("format")
        if version != FORMAT:
            raise CommandFailed(
                f"{self.path} has the format {version}, which this release cannot read. Install "
                "the release that made it, or a newer one."
            )
        return msgspec.json.decode(content, type=Manifest)


def _sum(file: IO[bytes], size: int) -> bytes:
    """Return the checksum of all but the bytes that are its own place."""
    digest, left = hashlib.sha256(), size - _CHECKSUM_BYTES
    file.seek(0)
    while left and (data := file.read(min(CHUNK_BYTES, left))):
        digest.update(data)
        left -= len(data)
    return _CHECKSUM + digest.hexdigest().encode()
