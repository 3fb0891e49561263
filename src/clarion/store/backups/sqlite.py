"""Backs up and restores a SQLite file, while a server writes it.

One read transaction spans the whole copy. Without it, SQLite would start again after every commit
of the server. In WAL mode a reader does not block writers; the log grows until the copy is made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import apsw

from clarion.errors import CommandFailed, StartError
from clarion.store.backups.archive import (
    CHUNK_BYTES,
    Archive,
    ArchiveWriter,
    OnProgress,
    Table,
)
from clarion.store.migrations.plan import RECORDED
from clarion.system.data_directory import publish_once

MEMBER = "clarion.db"
# Pages that are copied before the progress is shown.
_PAGES = 1000
_BUSY_MS = 10_000


@contextlib.contextmanager
def copy(path: str, beside: Path, on_progress: OnProgress) -> Iterator[apsw.Connection]:
    """Copy a database to a temporary file, and yield a connection that reads the copy."""
    _check_space(path, beside)
    temporary = beside.with_name(f".{beside.name}.{os.urandom(8).hex()}.db")
    try:
        _copy(path, temporary, on_progress)
        with contextlib.closing(_open_copy(temporary)) as connection:
            _check(connection, path)
            yield connection
    except apsw.Error as error:
        raise CommandFailed(
            f"Cannot copy {path} ({type(error).__name__}: {error}). Nothing was written."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def list_tables(connection: apsw.Connection) -> dict[str, Table]:
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return {str(name): Table(_count(connection, str(name))) for (name,) in sorted(names)}


def _count(connection: apsw.Connection, table: str) -> int:
    ((count,),) = connection.execute(f'SELECT COUNT(*) FROM "{table}"')  # noqa: S608 - a table
    return int(str(count))


def list_migrations(connection: apsw.Connection) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(connection.execute(RECORDED)))


def pack(connection: apsw.Connection, archive: ArchiveWriter, on_progress: OnProgress) -> None:
    """Write the copied file into the archive."""
    path = Path(connection.filename)
    size, done = path.stat().st_size, 0
    with path.open("rb") as file, archive.add(MEMBER) as write:
        while data := file.read(CHUNK_BYTES):
            write(data)
            done += len(data)
            on_progress(done, size)


def restore(archive: Archive, path: Path, on_progress: OnProgress) -> None:
    """Write the database of a backup to a path where nothing is."""
    size, done = archive.manifest.members[MEMBER].size, 0
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for data in archive.read(MEMBER):
                file.write(data)
                done += len(data)
                on_progress(done, size)
            file.flush()
            os.fsync(file.fileno())
        publish_once(temporary, path)
    except FileExistsError as error:
        raise StartError(f"{path} exists already. Move it away first.") from error
    except OSError as error:
        raise StartError(f"Cannot write {path}: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_space(path: str, beside: Path) -> None:
    needed, free = Path(path).stat().st_size, shutil.disk_usage(beside.parent).free
    if free < needed:
        raise StartError(
            f"A copy of {path} needs {needed:,} bytes in {beside.parent}, which has {free:,}."
        )


def _copy(path: str, target: Path, on_progress: OnProgress) -> None:
    with (
        contextlib.closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as source,
        contextlib.closing(apsw.Connection(str(target))) as copied,
    ):
        source.set_busy_timeout(_BUSY_MS)
        source.execute("BEGIN")
        source.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
        # A copy that is not complete is deleted, so nothing of it has to be synced.
        copied.execute("PRAGMA synchronous=OFF").fetchall()
        with copied.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES)
                on_progress(backup.page_count - backup.remaining, backup.page_count)


def _open_copy(path: Path) -> apsw.Connection:
    """Open a file that no process writes, without additional files."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=flags)


def _check(connection: apsw.Connection, path: str) -> None:
    ((found,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise CommandFailed(
            f"{path} is damaged, so no backup of it was made: {found}. Keep the older backups."
        )
