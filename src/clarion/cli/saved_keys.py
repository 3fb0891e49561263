"""The first keys of a database in first-run.json, and those of former databases next to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from clarion.app.stores import Stores
from clarion.cli.first_run import FirstRun, KeysDatabase, read_first_run, to_json
from clarion.errors import StartError
from clarion.system.data_directory import DataDirectory, write_private


async def find_own(stores: Stores) -> FirstRun | None:
    """Return the first keys of this database, and make first-run.json the file that has them.

    None if they are not in the data directory; first-run.json stays as it is then.
    """
    for path, first in _list_saved(stores.directory):
        if first.database.id == stores.installation.id:
            named = replace(first, database=name_database(stores))
            if path != stores.directory.first_run or named != first:
                save(stores.directory, named)
            return named
    return None


def save(directory: DataDirectory, first: FirstRun) -> None:
    """Write first-run.json. Keys of another database in it are kept in a file next to it."""
    current = directory.first_run
    if current.exists():
        former = read_first_run(current)
        if former.app.id != first.app.id:
            write_private(_file_of(directory, former), current.read_bytes())
    write_private(current, to_json(first))


def find_foreign(directory: DataDirectory, own: FirstRun | None) -> list[tuple[Path, FirstRun]]:
    """Return the saved keys of other databases, and the files that have them."""
    return [
        (path, first)
        for path, first in _list_saved(directory)
        if own is None or first.app.id != own.app.id
    ]


def name_database(stores: Stores) -> KeysDatabase:
    return KeysDatabase(stores.installation.id, stores.installation.database)


def _list_saved(directory: DataDirectory) -> Iterator[tuple[Path, FirstRun]]:
    if directory.first_run.exists():
        yield directory.first_run, read_first_run(directory.first_run)
    for path in directory.list_other_first_runs():
        try:
            first = read_first_run(path)
        except StartError:  # somebody has changed a copy
            continue
        yield path, first


def _file_of(directory: DataDirectory, first: FirstRun) -> Path:
    return directory.path / f"first-run-{first.app.id}.json"
