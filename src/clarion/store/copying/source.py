"""The SQLite database that is copied. No other process can open it during the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from clarion.errors import CommandFailed
from clarion.store.copying.tables import CopiedTable
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.moved import find_moved, next_name
from clarion.store.statement import Row

# Rows that are read at once: as many, or as much text.
BATCH_ROWS = 2_000
_BATCH_BYTES = 2 << 20
_LIST_COLUMNS = "SELECT name, pk FROM pragma_table_info(?) ORDER BY cid"


class Source:
    """An open SQLite database with an exclusive lock."""

    def __init__(self, path: str, connection: apsw.Connection, names: Sequence[str]) -> None:
        self.path = path
        self._names = sorted(names)
        self._connection = connection

    @classmethod
    def open(cls, path: str, names: Sequence[str]) -> Source:
        """Lock the database to copy from, and bring it up to date.

        `CommandFailed` if another process uses it.
        """
        if not Path(path).is_file():
            if moved := find_moved(Path(path)):
                raise CommandFailed(
                    f"{path} was copied already, and is now {moved}. Start the server with "
                    f"--database, or copy again with --from {moved}."
                )
            raise CommandFailed(f"There is no database {path}. Choose one with --from.")
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # Taken with the first transaction, and kept until the connection is closed.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            connection.execute("PRAGMA synchronous=FULL").fetchall()
            connection.execute("BEGIN EXCLUSIVE; COMMIT").fetchall()
            apply_to_sqlite(connection)
        except apsw.BusyError as error:
            connection.close()
            raise CommandFailed(
                f"A Clarion server or command uses {path}. Stop it, and try again."
            ) from error
        except apsw.Error as error:
            connection.close()
            raise CommandFailed(f"Cannot read {path} ({type(error).__name__}).") from error
        return cls(path, connection, names)

    def close(self) -> None:
        self._connection.close()

    def move_away(self) -> Path:
        """Close the database and rename its file, so that no server starts with it by mistake."""
        self.close()
        moved = next_name(Path(self.path))
        # SQLite removes its log when it closes a database; if it could not, the log goes along.
        for end in ("-wal", ""):
            if Path(self.path + end).exists():
                Path(self.path + end).rename(f"{moved}{end}")
        return moved

    def list_tables(self) -> list[CopiedTable]:
        """Return the tables that are copied."""
        return [self._describe(name) for name in self._names]

    def _describe(self, name: str) -> CopiedTable:
        found = self._connection.execute(_LIST_COLUMNS, (name,)).fetchall()
        columns = tuple(str(column) for column, _ in found)
        key = sorted((place, str(column)) for column, place in found if place)
        return CopiedTable(name, columns, tuple(column for _, column in key))

    def count(self, table: CopiedTable) -> int:
        ((count,),) = self._connection.execute(f"SELECT COUNT(*) FROM {table.name}")  # noqa: S608 - of the schema
        return int(count)

    def read(self, table: CopiedTable, after: Row | None, rows: int) -> Iterator[list[Row]]:
        """Yield the rows after a key, in the order of keys, in batches of limited size."""
        key = ", ".join(table.key)
        marks = ", ".join("?" for _ in table.key)
        where = "" if after is None else f"WHERE ({key}) > ({marks})"
        text = f"SELECT {', '.join(table.columns)} FROM {table.name} {where} ORDER BY {key}"  # noqa: S608 - likewise
        batch: list[Row] = []
        size = 0
        for row in self._connection.execute(text, after or ()):
            batch.append(row)
            size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if len(batch) >= rows or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def read_installation(self) -> tuple[str, bytes, int, str | None] | None:
        """Return the id, seal, time and copy of the database; None if it has none yet."""
        found: list[Any] = self._connection.execute(
            "SELECT id, seal, created_at, copy_id FROM installation WHERE slot = 1"
        ).fetchall()
        return found[0] if found else None

    def begin_copy(self, copy_id: str) -> None:
        """Record the copy; a server that opens the database removes the record."""
        self._connection.execute("UPDATE installation SET copy_id = ? WHERE slot = 1", (copy_id,))
