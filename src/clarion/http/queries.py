"""The query of a fast route → its type; every fault names its parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from clarion.errors import FieldFault, InvalidFields
from clarion.http.decoding import explain

T = TypeVar("T", bound=msgspec.Struct)


def read_query(query: bytes, wanted: type[T]) -> T:
    """Return the parameters as a struct, each by the last value given; others are ignored.

    `InvalidFields` names all that do not fit.
    """
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidFields(*_find_faults(given, wanted)) from error


def _find_faults(given: dict[str, str], wanted: type[msgspec.Struct]) -> Iterator[FieldFault]:
    for field in msgspec.structs.fields(wanted):
        try:
            msgspec.convert(given.get(field.name, field.default), field.type, strict=False)
        except msgspec.ValidationError as error:
            # Every parameter comes as text: "not a string" would only confuse.
            yield FieldFault(field.name, explain(str(error)).partition(", not ")[0])
