"""Every column of bytes is declared, so it is known whether it is sealed."""

import apsw

from clarion.app.tables import TABLES
from clarion.store.migrations.plan import apply_to_sqlite

COLUMNS = """SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND c.type IN ('BYTEA', 'BLOB')"""


def test_each_column_of_bytes_is_declared() -> None:
    """A rotation of the master key would lose a sealed column that is not declared as such."""
    connection = apsw.Connection(":memory:")
    apply_to_sqlite(connection)
    declared = {(table.name, column) for table in TABLES for column in table.answers}
    assert set(connection.execute(COLUMNS)) - declared == set()
    connection.close()
