"""JSON Schemas of the data of events: which are checked where, and how large they may be.

A small schema checks small data in this process; everything else is checked in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from clarion.catalog.schema_cost import measure
from clarion.errors import FieldFault
from clarion.fields import check_json

if TYPE_CHECKING:
    from clarion.catalog.json_schema import Schema

SCHEMA_LIMIT_BYTES = 65_536
# A schema that is checked in this process: its compilation takes a few milliseconds at most.
SMALL_COST = 2_000
SMALL_BYTES = 8_192
# Its cost times the size of the data in bytes: 12 ms for the worst that was found, multiples of
# large numbers.
SMALL_WORK = 500_000
# To name the faults takes far longer than to find that there are some: 3 µs for each.
TINY_WORK = 3_000
_encode = msgspec.json.Encoder().encode


class SmallSchema:
    """A schema that may be used in this process, for small data."""

    def __init__(self, schema: Schema, cost: int) -> None:
        self._schema = schema
        self._cost = cost

    def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...] | None:
        """Return the faults of the data; None if that may take long."""
        work = self._cost * len(_encode(data))
        if work > SMALL_WORK:
            return None
        if self._schema.is_valid(data):
            return ()
        return self._schema.find_faults(data) if work <= TINY_WORK else None


def load_small(document: Mapping[str, object]) -> SmallSchema | None:
    """Return a schema that is certainly cheap, or None."""
    try:
        if len(_encode(document)) > SMALL_BYTES:
            return None
        cost = measure(document, SMALL_COST)
        if not cost.is_known:
            return None
        from clarion.catalog.json_schema import Schema  # noqa: PLC0415 - if there is a schema

        return SmallSchema(Schema(document), cost.total)
    except ValueError:
        # Also one that an earlier release accepted: the sandbox says what is wrong with it.
        return None


def check_size(document: dict[str, object]) -> dict[str, object]:
    """Return the document; `ValueError` if it is too large or too deep to look at."""
    check_json(document, SCHEMA_LIMIT_BYTES)
    return document
