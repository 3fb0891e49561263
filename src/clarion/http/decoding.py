"""A JSON body → its type; every fault names its field and says what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from clarion.errors import FieldFault, InvalidFields, MalformedBody

T = TypeVar("T")
_PLACE = re.compile(r"^(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_NAMED = (
    (re.compile(r"unknown field `(.+?)`"), "there is no such field"),
    (re.compile(r"missing required field `(.+?)`"), "is required"),
)
_TYPES = re.compile(r"`([a-z |]+)`")
_TYPE_NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "datetime": "a time",
}
_PHRASES = (
    ("Expected ", "must be "),
    (", got ", ", not "),
    (" of length >= ", " with a length of at least "),
    (" of length <= ", " with a length of at most "),
    (" >= ", " of at least "),
    (" <= ", " of at most "),
    ("Invalid RFC3339 encoded datetime", "must be a time, like 2026-01-31T12:00:00Z"),
)


def decode(decoder: msgspec.json.Decoder[T], body: bytes | memoryview) -> T:
    """Return a body as its type; `MalformedBody` or `InvalidFields` if it does not fit."""
    try:
        return decoder.decode(bytes(body))
    except msgspec.ValidationError as error:
        raise InvalidFields(_fault(str(error), decoder.type)) from error
    # Bytes that are not UTF-8, and endless nesting, are no error of the decoder's own.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = None if body else "The request has no body; send JSON."
        raise MalformedBody(msg) from error


def explain(message: str) -> str:
    """Return a message of msgspec in terms of JSON: `must be an integer, not a string`."""
    for phrase, plain in _PHRASES:
        message = message.replace(phrase, plain)
    return _TYPES.sub(lambda found: _name_types(found[1].split(" | ")), message)


def _name_types(names: list[str]) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in names)


def _fault(message: str, body_type: Any) -> FieldFault:
    found = _PLACE.match(message)
    reason, place = (found[1], found[2] or "") if found else (message, "")
    for pattern, short in _NAMED:
        if named := pattern.search(reason):
            return FieldFault(f"{place}.{named[1]}" if place else named[1], short)
    if reason.startswith("Invalid enum value"):
        allowed = ", ".join(map(str, _list_allowed(body_type, place)))
        return FieldFault(place or "body", f"must be one of {allowed}")
    return FieldFault(place or "body", explain(reason))


def _list_allowed(body_type: Any, place: str) -> Iterator[object]:
    """Yield the values that the enum at a place of a body can have."""
    types = [inspect.type_info(body_type)]
    for step in _STEP.findall(place):
        types = [inner for outer in types for inner in _step_into(outer, step)]
    for each in types:
        for option in _flatten(each):
            if isinstance(option, inspect.EnumType):
                yield from (member.value for member in option.cls)
            elif isinstance(option, inspect.LiteralType):
                yield from option.values


def _step_into(outer: inspect.Type, step: str) -> Iterator[inspect.Type]:
    for option in _flatten(outer):
        if isinstance(option, inspect.StructType):
            yield from (each.type for each in option.fields if each.encode_name == step)
        elif isinstance(option, inspect.CollectionType):
            yield option.item_type
        elif isinstance(option, inspect.DictType):
            yield option.value_type


def _flatten(each: inspect.Type) -> tuple[inspect.Type, ...]:
    return each.types if isinstance(each, inspect.UnionType) else (each,)
