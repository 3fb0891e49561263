"""One JSON Schema, compiled: checks data and names its faults. Remote references are never fetched.

Imported when there is a schema: the library takes 4 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NoReturn

import jsonschema_rs
import msgspec

from clarion.catalog.schema_cost import OverBudget, measure
from clarion.errors import FieldFault

# Of larger data one fault is named: for each of them, the library copies the data.
_ALL_FAULTS_BYTES = 4_096
# Reported at once: in a long list every item may have a fault.
_FAULTS_LIMIT = 20
_REASON_LENGTH = 200
_PATH_LENGTH = 500
_encode = msgspec.json.Encoder().encode
# This engine of regular expressions does not backtrack: its time is linear in the text. The sizes
# are in bytes, for each pattern.
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)


class Schema:
    """Checks data against one JSON Schema; `ValueError` if the document is not a schema."""

    def __init__(self, document: Mapping[str, object]) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(
                dict(document), retriever=_refuse, pattern_options=_PATTERNS
            )
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise ValueError(f"must be a JSON Schema: {str(error).splitlines()[0]}") from error

    def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        """Return what is wrong with the data, naming each field as `data.…`."""
        if self.is_valid(data):
            return ()
        if len(_encode(data)) > _ALL_FAULTS_BYTES:
            return self._find_first(data)
        errors = islice(self._validator.iter_errors(data), _FAULTS_LIMIT)
        return tuple(_fault(error) for error in errors)

    def is_valid(self, data: Mapping[str, object]) -> bool:
        return self._validator.is_valid(data)

    def _find_first(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        try:
            self._validator.validate(data)
        except jsonschema_rs.ValidationError as error:
            return (_fault(error),)
        return ()


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
