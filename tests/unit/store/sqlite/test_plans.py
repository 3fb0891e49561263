"""A statement is compiled once, however many rows it is run with."""

from pathlib import Path

import apsw
import pytest

from clarion.inbox.sql.numbers import REMEMBER
from clarion.store.sqlite.engine import migrate
from clarion.store.sqlite.reader import open_quick_reader, open_reader
from clarion.store.sqlite.runner import open_connection

ROWS = [("app", f"user-{number}") for number in range(5)]
# The table has partial indexes on these columns.
HIGHEST = "SELECT MAX(sequence) FROM notifications WHERE app_id = $1 AND user_id = $2"


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "clarion.db")
    migrate(path)
    return path


def count_checks(connection: apsw.Connection, text: str, rows: list[tuple[str, str]]) -> int:
    """Return how often SQLite asks what a statement may do: it does so whenever it compiles one."""
    asked: list[int] = []

    def note(*question: object) -> int:
        asked.append(len(question))
        return int(apsw.SQLITE_OK)

    connection.authorizer = note
    connection.cursor().executemany(text, rows).fetchall()
    connection.authorizer = None
    return len(asked)


def is_compiled_once(connection: apsw.Connection, text: str) -> bool:
    once = count_checks(connection, text, ROWS[:1])
    assert once
    return count_checks(connection, f"{text} ", ROWS) == once


def test_the_writer_compiles_a_statement_once(path: str) -> None:
    assert is_compiled_once(open_connection(path), REMEMBER.text)


def test_a_reader_compiles_a_statement_once_unless_its_reads_are_long(path: str) -> None:
    assert is_compiled_once(open_quick_reader(path), f"{HIGHEST} AND sequence > 0")
    assert not is_compiled_once(open_reader(path), f"{HIGHEST} AND sequence > 0")


def test_without_the_setting_it_is_compiled_for_each_row(path: str) -> None:
    """The control of the tests before."""
    connection = open_connection(path)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 0)
    assert not is_compiled_once(connection, REMEMBER.text)
