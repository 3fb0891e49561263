"""The sequence number after which a stream resumes, as clients send it."""

from __future__ import annotations

from clarion.errors import FieldFault, InvalidFields

_LARGEST = (1 << 63) - 1
_DIGITS = 19


def read_sequence(text: str, field: str) -> int:
    """Return the number; `InvalidFields` if no update can have it."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    if not is_number or int(text) > _LARGEST:
        raise InvalidFields(FieldFault(field, "must be the sequence of an update"))
    return int(text)
