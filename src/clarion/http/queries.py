"""The query of a request: its names are checked, and that of a fast route becomes its type."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from clarion.errors import FieldFault, InvalidFields
from clarion.fields import did_you_mean
from clarion.http.asgi import Operation
from clarion.http.decoding import explain

T = TypeVar("T", bound=msgspec.Struct)
# An option of a handler that checks the names in its query itself.
READS_QUERY = "reads_query"
# Unknown parameters that a response names.
_FAULTS_LIMIT = 10


def check_names(query: bytes, known: Collection[str]) -> None:
    """Refuse parameters that an operation does not have: a misspelt filter would have no effect."""
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    unknown = [name for name in given if name not in known]
    if unknown:
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        reason = f"is not a parameter of this operation; {takes}"
        faults = (
            FieldFault(name, reason + did_you_mean(name, known)) for name in unknown[:_FAULTS_LIMIT]
        )
        raise InvalidFields(*faults)


def list_parameters(operation: Operation) -> frozenset[str]:
    """Return the names of the parameters in the query of a fast route."""
    return frozenset(each.name for each in operation.parameters if each.place == "query")


def read_query(query: bytes, wanted: type[T]) -> T:
    """Return the parameters as a struct, each by the last value given.

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
