"""Databases that `clarion migrate-data` has copied to PostgreSQL, and renamed."""

from __future__ import annotations

import re
from pathlib import Path

from clarion.errors import StartError

_END = re.compile(r"\.migrated([0-9]*)$")


def next_name(path: Path) -> Path:
    """Return the name that a copied database gets: the first one after those that are taken."""
    if _END.search(path.name):  # it was copied before
        return path
    newest = find_moved(path)
    number = _number_of(newest) + 1 if newest else 1
    return path.with_name(f"{path.name}.migrated{number if number > 1 else ''}")


def find_moved(path: Path) -> Path | None:
    """Return the last database that was copied from this path."""
    near = path.parent.iterdir() if path.parent.is_dir() else ()
    moved = [each for each in near if _END.sub("", each.name) == path.name != each.name]
    return max(moved, key=_number_of, default=None)


def refuse_moved(path: Path) -> None:
    """Raise `StartError` if there is no database because its data is in PostgreSQL now.

    Otherwise an empty one would be created, and served as if nothing had ever been stored.
    """
    if path.exists() or (moved := find_moved(path)) is None:
        return
    raise StartError(
        f"{path} was copied to PostgreSQL by `clarion migrate-data`, and is now {moved}.\n"
        "To use PostgreSQL, start with --database postgresql://… or set CLARION_DATABASE.\n"
        f"To go back to SQLite, move audit.log away and run: mv {moved} {path}\n"
        "Everything that was written to PostgreSQL since the copy is missing in it.\n"
        "To begin with an empty database, choose another directory with --data, or move "
        f"audit.log and {moved.name} away."
    )


def _number_of(moved: Path) -> int:
    found = _END.search(moved.name)
    return int(found[1] or 1) if found else 0
