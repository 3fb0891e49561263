"""The state of a database as a whole, in SQL: its id, an unfinished copy, and retired keys."""

from __future__ import annotations

from clarion.store.statement import statement

SELECT = statement(
    "select_installation", "SELECT id, seal, copy_id FROM installation WHERE slot = 1"
)
# Of several nodes that open an empty database at the same time, one adds the row.
INSERT = statement(
    "insert_installation",
    """INSERT INTO installation (id, slot, seal, created_at) VALUES (:id, 1, :seal, :now)
    ON CONFLICT (slot) DO NOTHING""",
)
VOID_COPY = statement(
    "void_copy_of_installation",
    "UPDATE installation SET copy_id = NULL WHERE copy_id IS NOT NULL",
)
FIND_COPY = statement(
    "find_copy_into_database", "SELECT name FROM copied_tables ORDER BY name LIMIT 1"
)
RETIRE_KEY = statement(
    "retire_key",
    "INSERT INTO retired_keys (id, retired_at) VALUES (:id, :now) ON CONFLICT (id) DO NOTHING",
)
FIND_RETIRED_KEY = statement("find_retired_key", "SELECT id FROM retired_keys WHERE id = :id")
