"""JSON Schema of the data of events: compiled once, never fetched from anywhere."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import jsonschema_rs

from clarion.errors import FieldFault, InvalidFields

if TYPE_CHECKING:
    from collections.abc import Mapping

# Faults named at once; a long list of items may have a fault each.
_FAULTS = 20
_REASON = 200


class Schema:
    """Checks data against one JSON Schema."""

    def __init__(self, document: dict[str, object]) -> None:
        # The regular expressions without backtracking: none takes longer than its text is long.
        self._validator = jsonschema_rs.validator_for(
            document, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )

    def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        """Return what is wrong with the data, naming each field as `data.…`."""
        if self._validator.is_valid(data):
            return ()
        errors = islice(self._validator.iter_errors(data), _FAULTS)
        return tuple(_fault(error) for error in errors)


def compile_schema(field: str, document: dict[str, object]) -> Schema:
    """Return the compiled schema; `InvalidFields` if it is none."""
    try:
        return Schema(document)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        reason = f"must be a JSON Schema: {str(error).splitlines()[0]}"
        raise InvalidFields(FieldFault(field, reason)) from error


def _fault(error: jsonschema_rs.ValidationError) -> FieldFault:
    keys: list[str | int] = ["data", *error.instance_path]
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return FieldFault(_place(*keys, error.kind.property), "is required")
    return FieldFault(_place(*keys), error.message[:_REASON])


def _place(root: str | int, *keys: str | int) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"{root}{''.join(parts)}"


def _refuse(uri: str) -> NoReturn:
    msg = f"{uri}: a schema may refer only to itself"
    raise ValueError(msg)
