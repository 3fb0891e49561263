"""Every column of bytes is known to be sealed or plain."""

import apsw

from clarion.app.key_rotation import PLAIN, SEALED
from clarion.store.migrations.plan import apply_to_sqlite

COLUMNS = """SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND c.type IN ('BYTEA', 'BLOB')"""


def test_a_new_column_of_bytes_is_listed_as_sealed_or_plain() -> None:
    """A sealed column that is not in the list would be lost by a rotation of the master key."""
    connection = apsw.Connection(":memory:")
    apply_to_sqlite(connection)
    sealed = {(each.table, each.column) for each in SEALED}
    assert set(connection.execute(COLUMNS)) == sealed | PLAIN
    assert not sealed & PLAIN
    connection.close()
