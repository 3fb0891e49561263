"""JSON Schema of the data of events: compiled once; remote references are never fetched.

A small schema checks small data in this process; everything else is checked in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NoReturn

import jsonschema_rs
import msgspec

from clarion.catalog.schema_cost import OverBudget, measure
from clarion.errors import FieldFault
from clarion.fields import NESTING_LIMIT, is_nested_too_deeply

SCHEMA_LIMIT_BYTES = 65_536
# A schema that is checked in this process: its compilation takes a few milliseconds at most.
SMALL_COST = 2_000
SMALL_BYTES = 8_192
# Its cost times the size of the data in bytes: a few milliseconds for the worst that was found.
SMALL_WORK = 500_000
# Reported at once: in a long list every item may have a fault.
_FAULTS_LIMIT = 20
_REASON_LENGTH = 200
_PATH_LENGTH = 500
_encode = msgspec.json.Encoder().encode
# This engine of regular expressions does not backtrack: its time is linear in the text. The sizes
# are in bytes, for each pattern.
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)


class Schema:
    """Checks data against one JSON Schema; `ValueError` if the document is none."""

    def __init__(self, document: Mapping[str, object]) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(
                dict(document), retriever=_refuse, pattern_options=_PATTERNS
            )
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise ValueError(f"must be a JSON Schema: {str(error).splitlines()[0]}") from error

    def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        """Return what is wrong with the data, naming each field as `data.…`."""
        if self._validator.is_valid(data):
            return ()
        errors = islice(self._validator.iter_errors(data), _FAULTS_LIMIT)
        return tuple(_fault(error) for error in errors)


class SmallSchema:
    """A schema that may be used in this process, for small data."""

    def __init__(self, document: Mapping[str, object], cost: int) -> None:
        self._schema = Schema(document)
        self._largest_bytes = SMALL_WORK // cost

    def takes(self, data: Mapping[str, object]) -> bool:
        """Whether the data is small enough."""
        return len(_encode(data)) <= self._largest_bytes

    def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        return self._schema.find_faults(data)


def load_small(document: Mapping[str, object]) -> SmallSchema | None:
    """Return a schema that is certainly cheap, or None."""
    try:
        if len(_encode(document)) > SMALL_BYTES:
            return None
        cost = measure(document, SMALL_COST)
        return SmallSchema(document, cost.total) if cost.is_known else None
    except ValueError:
        # Also one that an earlier release accepted: the sandbox says what is wrong with it.
        return None


def check_size(document: dict[str, object]) -> dict[str, object]:
    """Return the document; `ValueError` if it is too large or too deep to look at."""
    if is_nested_too_deeply(document):
        raise ValueError(f"must be nested at most {NESTING_LIMIT} levels deep")
    if len(_encode(document)) > SCHEMA_LIMIT_BYTES:
        raise ValueError(f"must have at most {SCHEMA_LIMIT_BYTES:,} bytes as JSON")
    return document


def check_schema(document: dict[str, object]) -> None:
    """Raise `ValueError` if a document costs too much or is no JSON Schema. Takes its time."""
    try:
        measure(document)
    except OverBudget as error:
        raise ValueError(f"at {error}") from error
    Schema(document)


def _fault(error: jsonschema_rs.ValidationError) -> FieldFault:
    keys: list[str | int] = ["data", *error.instance_path]
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return FieldFault(_place(*keys, error.kind.property), "is required")
    return FieldFault(_place(*keys), error.message[:_REASON_LENGTH])


def _place(root: str | int, *keys: str | int) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"{root}{''.join(parts)}"[:_PATH_LENGTH]


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri}: a schema may refer only to itself")
