"""Databases that were copied to PostgreSQL: the names they get, and how they are found."""

from pathlib import Path

import pytest

from clarion.errors import StartError
from clarion.store.sqlite.moved import find_moved, next_name, refuse_moved


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clarion.db"


def test_each_copied_database_gets_a_name_of_its_own(path: Path) -> None:
    for name in ("clarion.db.migrated", "clarion.db.migrated2", "clarion.db.migrated3"):
        assert next_name(path).name == name
        next_name(path).touch()
    path.with_name("clarion.db.migrated10").touch()
    assert next_name(path).name == "clarion.db.migrated11"


def test_a_database_that_is_copied_again_keeps_its_name(path: Path) -> None:
    moved = path.with_name("clarion.db.migrated2")
    assert next_name(moved) == moved


def test_the_last_one_is_found(path: Path) -> None:
    assert find_moved(path) is None
    for name in ("clarion.db.migrated9", "clarion.db.migrated", "clarion.db.migrated10"):
        path.with_name(name).touch()
    for other in ("other.db.migrated11", "clarion.db.migrated12-wal", "clarion.db.backup"):
        path.with_name(other).touch()
    assert find_moved(path) == path.with_name("clarion.db.migrated10")
    assert find_moved(path.parent / "missing" / "clarion.db") is None


def test_only_a_missing_database_is_refused(path: Path) -> None:
    refuse_moved(path)
    path.with_name("clarion.db.migrated").touch()
    with pytest.raises(StartError, match=r"is now .*clarion\.db\.migrated\."):
        refuse_moved(path)
    path.touch()
    refuse_moved(path)
