"""A JSON body → its type; every fault names its field and says what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from clarion.errors import FieldFault, InvalidFields, MalformedBody

T = TypeVar("T")
# Faults of a body that are named, and items of a list or map that are looked into.
FAULTS_LIMIT = 20
ITEMS_LIMIT = 1_000
_PLACE = re.compile(r"^(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_UNKNOWN, _MISSING = "there is no such field", "is required"
_NAMED = (
    (re.compile(r"unknown field `(.+?)`"), _UNKNOWN),
    (re.compile(r"missing required field `(.+?)`"), _MISSING),
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


# Bytes that are not UTF-8, and endless nesting, are no error of the decoder's own.
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode(decoder: msgspec.json.Decoder[T], body: bytes | memoryview) -> T:
    """Return a body as its type; `MalformedBody` or `InvalidFields` if it does not fit."""
    try:
        return decoder.decode(bytes(body))
    except msgspec.ValidationError as error:
        raise InvalidFields(*_find_faults(body, decoder.type, str(error))) from error
    except _NOT_JSON as error:
        msg = None if body else "The request has no body; send JSON."
        raise MalformedBody(msg) from error


def explain(message: str) -> str:
    """Return a message of msgspec in terms of JSON: `must be an integer, not a string`."""
    for phrase, plain in _PHRASES:
        message = message.replace(phrase, plain)
    return _TYPES.sub(lambda found: _name_types(found[1].split(" | ")), message)


def _name_types(names: list[str]) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in names)


def _find_faults(body: bytes | memoryview, body_type: Any, message: str) -> list[FieldFault]:
    """Return the faults of a body; the decoder itself stops at the first one.

    Each value of the body that does not fit its type is looked into, until the values are found
    that are wrong by themselves.
    """
    first = _fault(message, body_type)
    try:
        value = msgspec.json.decode(bytes(body))
    except _NOT_JSON:  # after the first fault
        return [first]
    return list(islice(_walk(value, body_type, ""), FAULTS_LIMIT)) or [first]


def _walk(value: Any, value_type: Any, place: str) -> Iterator[FieldFault]:
    try:
        msgspec.convert(value, value_type)
    except msgspec.ValidationError as error:
        inner = list(islice(_walk_into(value, value_type, place), FAULTS_LIMIT))
        yield from inner or [_fault(str(error), value_type, place)]


def _walk_into(value: Any, value_type: Any, place: str) -> Iterator[FieldFault]:
    """Yield the faults of the parts of a value, if it is of the kind that its type asks for."""
    for option in _list_options(value_type):
        origin, arguments = get_origin(option), get_args(option)
        if isinstance(value, dict) and _is_struct(option):
            yield from _walk_fields(value, option, place)
        elif isinstance(value, dict) and origin is dict:
            for key, each in islice(value.items(), ITEMS_LIMIT):
                yield from _walk(each, arguments[1], f"{place}.{key}")
        elif isinstance(value, list) and origin in (list, tuple):
            yield from _walk_items(value, arguments[0], place)


def _walk_items(items: list[Any], item_type: Any, place: str) -> Iterator[FieldFault]:
    for index, each in enumerate(items[:ITEMS_LIMIT]):
        for fault in _walk(each, item_type, f"{place}[{index}]"):
            yield fault
            # If the first of many numbers is wrong, often all of them are.
            if not isinstance(each, (dict, list)):
                return


def _walk_fields(value: dict[str, Any], struct: Any, place: str) -> Iterator[FieldFault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if struct.__struct_config__.forbid_unknown_fields:
        for name in value.keys() - fields.keys():
            yield FieldFault(_join(place, name), _UNKNOWN)
    for name, field in fields.items():
        if name in value:
            yield from _walk(value[name], field.type, _join(place, name))
        elif field.required:
            yield FieldFault(_join(place, name), _MISSING)


def _list_options(value_type: Any) -> list[Any]:
    """Return the types that a union consists of, without what is only said about them."""
    origin = get_origin(value_type)
    if origin is Annotated:
        return _list_options(get_args(value_type)[0])
    if origin in (Union, UnionType):
        return [each for option in get_args(value_type) for each in _list_options(option)]
    return [value_type]


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place and name and name[0] != "[" else place + name


def _fault(message: str, body_type: Any, within: str = "") -> FieldFault:
    found = _PLACE.match(message)
    reason, place = (found[1], found[2] or "") if found else (message, "")
    fault = _explain_fault(reason, place, body_type)
    return FieldFault(_join(within, fault.field) or "body", fault.reason)


def _explain_fault(reason: str, place: str, body_type: Any) -> FieldFault:
    for pattern, short in _NAMED:
        if named := pattern.search(reason):
            return FieldFault(_join(place, named[1]), short)
    if reason.startswith("Invalid enum value"):
        allowed = ", ".join(map(str, _list_allowed(body_type, place)))
        return FieldFault(place, f"must be one of {allowed}")
    return FieldFault(place, explain(reason))


def _is_struct(value_type: Any) -> bool:
    return isinstance(value_type, type) and issubclass(value_type, msgspec.Struct)


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
    if isinstance(each, inspect.Metadata):
        each = each.type
    return each.types if isinstance(each, inspect.UnionType) else (each,)
