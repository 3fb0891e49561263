"""The statements that read and replace the values of a column whose values are sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from clarion.store.statement import Row, Statement, Value, statement
from clarion.store.table import Table

# Read and written at once; a sealed response can have 100 KB.
PAGE_ROWS = 200
# The version and the key id of a sealed value.
PREFIX_BYTES = 5


class SealedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column with sealed values. Each is sealed for its row: `context` takes the `fields`."""

    table: str
    column: str
    key: tuple[str, ...]
    fields: tuple[str, ...]
    context: Callable[..., str]

    def find_context(self, row: Row) -> str:
        """Return the context of the value of a row: of its page, or of the sample."""
        return self.context(*(row[self.selected.index(name)] for name in self.fields))

    def read_key(self, row: Row) -> dict[str, Value]:
        return {name: row[self.selected.index(name)] for name in self.key}

    @property
    def selected(self) -> tuple[str, ...]:
        """The columns that are read with a value."""
        return tuple(dict.fromkeys((*self.key, *self.fields)))

    def select_page(self) -> Statement:
        """Return the statement for the rows after a key, in the order of keys."""
        after = ", ".join(f":{name}" for name in self.key)
        key = ", ".join(self.key)
        return statement(
            f"select_sealed_{self.table}",
            f"""SELECT {", ".join(self.selected)}, {self.column} FROM {self.table}
            WHERE ({key}) > ({after}) ORDER BY {key} LIMIT {PAGE_ROWS}""",
        )

    def select_sample(self) -> Statement:
        return statement(
            f"select_sample_of_{self.table}",
            f"""SELECT {", ".join(self.selected)}, {self.column} FROM {self.table}
            WHERE {self.column} IS NOT NULL LIMIT 1""",
        )

    def replace(self) -> Statement:
        """Return the statement that replaces a value, unless it has changed since it was read."""
        row = " AND ".join(f"{name} = :{name}" for name in self.key)
        return statement(
            f"reseal_{self.table}",
            f"""UPDATE {self.table} SET {self.column} = :sealed
            WHERE {row} AND {self.column} = :before""",
        )

    def count_keys(self) -> Statement:
        """Return the statement that counts values by their first bytes: version and key id."""
        return statement(
            f"count_keys_of_{self.table}",
            f"""SELECT SUBSTR({self.column}, 1, {PREFIX_BYTES}), COUNT(*) FROM {self.table}
            WHERE {self.column} IS NOT NULL GROUP BY 1""",
        )


def list_sealed(tables: Sequence[Table[Any]]) -> Iterator[SealedColumn]:
    """Yield the sealed columns of tables."""
    for table in tables:
        for column, sealed in table.sealed.items():
            yield SealedColumn(
                table=table.name,
                column=column,
                key=table.key,
                fields=sealed.fields or table.key,
                context=sealed.context,
            )
