"""A table that is copied, and the count and checksum of its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from clarion.store.statement import Row

_DIGEST_BYTES = 16
_MODULUS = 1 << (8 * _DIGEST_BYTES)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table with its columns and its primary key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def read_key(self, row: Row) -> Row:
        """Return the primary key of a row that has all columns."""
        return tuple(row[self.columns.index(name)] for name in self.key)


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of rows, and a sum of their hashes that does not depend on their order."""

    count: int = 0
    total: int = 0

    def add(self, rows: Iterable[Row]) -> Checksum:
        count, total = self.count, self.total
        for row in rows:
            digest = hashlib.blake2b(_encode(row), digest_size=_DIGEST_BYTES).digest()
            total += int.from_bytes(digest, "big")
            count += 1
        return Checksum(count, total % _MODULUS)

    @property
    def hex(self) -> str:
        return f"{self.total:0{2 * _DIGEST_BYTES}x}"


NOTHING = Checksum()
