"""JSON Schema of the data of events: compiled once; remote references are never fetched."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NoReturn

import jsonschema_rs
import msgspec

from clarion.errors import FieldFault

SCHEMA_LIMIT_BYTES = 65_536
# Reported at once: in a long list every item may have a fault.
_FAULTS_LIMIT = 20
_REASON_LENGTH = 200


class Schema:
    """Checks data against one JSON Schema."""

    def __init__(self, document: dict[str, object]) -> None:
        # This engine of regular expressions does not backtrack: its time is linear in the text.
        self._validator = jsonschema_rs.validator_for(
            document, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )

    def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        """Return what is wrong with the data, naming each field as `data.…`."""
        if self._validator.is_valid(data):
            return ()
        errors = islice(self._validator.iter_errors(data), _FAULTS_LIMIT)
        return tuple(_fault(error) for error in errors)


def check_schema(document: dict[str, object]) -> dict[str, object]:
    """Return the document; `ValueError` if it is too large or no JSON Schema."""
    if len(msgspec.json.encode(document)) > SCHEMA_LIMIT_BYTES:
        raise ValueError(f"must have at most {SCHEMA_LIMIT_BYTES:,} bytes as JSON")
    try:
        Schema(document)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(f"must be a JSON Schema: {str(error).splitlines()[0]}") from error
    return document


def _fault(error: jsonschema_rs.ValidationError) -> FieldFault:
    keys: list[str | int] = ["data", *error.instance_path]
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return FieldFault(_place(*keys, error.kind.property), "is required")
    return FieldFault(_place(*keys), error.message[:_REASON_LENGTH])


def _place(root: str | int, *keys: str | int) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"{root}{''.join(parts)}"


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri}: a schema may refer only to itself")
