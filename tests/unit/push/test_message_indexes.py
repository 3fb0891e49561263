"""Which indexes the statements about the messages of a device use on SQLite.

None reads the messages of a whole app for those of one device, or what has ended for what waits.
"""

import apsw
import pytest

from clarion.push.sql.devices import FAIL_ALL
from clarion.push.sql.messages import COUNT_WAITING, FIND_WAITING, LIST, SELECT_WAITING, TRIM
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.statement import Statement


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    apply_to_sqlite(connection)
    return connection


def find_indexes(connection: apsw.Connection, statement: Statement) -> set[str]:
    explained = f"EXPLAIN QUERY PLAN {statement.text}"
    plan = connection.execute(explained, (1,) * len(statement.names)).fetchall()
    lines = [str(line).split() for *_, line in plan]
    return {words[words.index("INDEX") + 1] for words in lines if "messages" in words[:2]}


def test_a_page_of_the_history_reads_what_waits_and_what_has_ended(
    connection: apsw.Connection,
) -> None:
    assert find_indexes(connection, LIST) == {"messages_waiting", "messages_past"}


@pytest.mark.parametrize(
    "statement", [SELECT_WAITING, COUNT_WAITING, FIND_WAITING, FAIL_ALL], ids=lambda each: each.name
)
def test_what_waits_is_found_by_its_device(
    connection: apsw.Connection, statement: Statement
) -> None:
    assert find_indexes(connection, statement) == {"messages_waiting"}


def test_what_is_trimmed_is_found_by_its_device(connection: apsw.Connection) -> None:
    by_id = "sqlite_autoindex_messages_1"
    assert find_indexes(connection, TRIM) == {"messages_waiting", by_id}
