"""A JSON body → its type, on the hot paths: every fault names its field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from clarion.errors import FieldFault, InvalidFields, MalformedBody

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_PLACE = re.compile(r"^(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?$", re.DOTALL)
_NAMED = (
    (re.compile(r"unknown field `(.+?)`"), "there is no such field"),
    (re.compile(r"missing required field `(.+?)`"), "is required"),
)


def decode(decoder: Callable[[bytes], T], body: bytes | memoryview) -> T:
    """Return what a body says; `MalformedBody` or `InvalidFields` if it does not fit."""
    try:
        return decoder(bytes(body))
    except msgspec.ValidationError as error:
        raise InvalidFields(_fault(str(error))) from error
    # Bytes that are no UTF-8, and nesting without end, come through as they are.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBody from error


def _fault(message: str) -> FieldFault:
    found = _PLACE.match(message)
    reason, place = (found[1], found[2] or "") if found else (message, "")
    for pattern, short in _NAMED:
        if named := pattern.search(reason):
            return FieldFault(f"{place}.{named[1]}" if place else named[1], short)
    return FieldFault(place or "body", reason[:1].lower() + reason[1:])
