"""A JSON body → its type; every fault names its field and says what would be right."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from copy import deepcopy
from itertools import islice
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect

from clarion.errors import FieldFault, InvalidFields, MalformedBody
from clarion.fields import did_you_mean
from clarion.http.bodies import UNKNOWN_FIELD, Body, collect, leave_out

T = TypeVar("T")
# Faults of a body that are named, and items of a list or map that are looked into.
FAULTS_LIMIT = 20
ITEMS_LIMIT = 1_000
_PLACE = re.compile(r"^(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_MISSING = "is required"
_NAMED = (
    (re.compile(r"unknown field `(.+?)`"), UNKNOWN_FIELD),
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
_BYTE = re.compile(r" \(byte (\d+)\)$")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | memoryview) -> T:
    """Return a body as its type; `MalformedBody` or `InvalidFields` if it does not fit.

    If a field does not fit its type, the checks of the other fields are made all the same, so that
    one answer names every fault.
    """
    decoded, faults = decode_partly(decoder, body)
    if not faults:
        return cast("T", decoded)
    if isinstance(decoded, Body):
        faults += _find_more_faults(decoded, faults)
    raise InvalidFields(*faults)


def decode_partly(
    decoder: msgspec.json.Decoder[T], body: bytes | memoryview
) -> tuple[T, list[FieldFault]] | tuple[None, list[FieldFault]]:
    """Return a body without the parts that do not fit its type, and the faults of these parts.

    The body is None if one of these is required. `MalformedBody` if it is not JSON.
    """
    try:
        return decoder.decode(bytes(body)), []
    except msgspec.ValidationError:
        return _decode_rest(_parse(bytes(body)), decoder.type)
    except _NOT_JSON as error:
        raise MalformedBody(_explain_syntax(bytes(body), error)) from error


def _parse(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except _NOT_JSON as error:  # after the first fault
        raise MalformedBody(_explain_syntax(body, error)) from error


def explain(message: str) -> str:
    """Return a message of msgspec in terms of JSON: `must be an integer, not a string`."""
    for phrase, plain in _PHRASES:
        message = message.replace(phrase, plain)
    return _TYPES.sub(lambda found: _name_types(found[1].split(" | ")), message)


def _name_types(names: list[str]) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in names)


def _explain_syntax(body: bytes, error: Exception) -> str:
    """Return what is wrong with JSON, and where, but never a part of it, which may be secret."""
    if not body:
        return "The request has no body; send JSON."
    if isinstance(error, UnicodeDecodeError):
        return f"The body is not UTF-8{_find_other_bytes(body)}."
    if isinstance(error, RecursionError):
        return "The body is not valid JSON: it is nested too deeply."
    reason = str(error).removeprefix("JSON is malformed: ")
    if reason == "Input data was truncated":
        return f"The body is not valid JSON: it ends too early{_describe_place(body, len(body))}."
    at = _BYTE.search(reason)
    reason = _BYTE.sub("", reason)
    # The place of what follows the JSON is given as that of its second character.
    index = int(at[1]) - (reason == "trailing characters") if at else 0
    return f"The body is not valid JSON: {reason}{_describe_place(body, index) if at else ''}."


def _find_other_bytes(body: bytes) -> str:
    # The error of the decoder has the place in its string only.
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return _describe_place(body, error.start)
    return ""


def _describe_place(body: bytes, at: int) -> str:
    before = body[:at].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f" at line {line}, column {column}"


def find_faults(value: Any, value_type: Any, place: str) -> list[FieldFault]:
    """Return the faults of a part of a body that is converted later than the rest."""
    faults = list[FieldFault]()
    _prune(deepcopy(value), value_type, place, faults)
    return faults[:FAULTS_LIMIT]


def _decode_rest(value: Any, body_type: Any) -> tuple[Any, list[FieldFault]]:
    faults = list[FieldFault]()
    fits = _prune(value, body_type, "", faults)
    return msgspec.convert(value, body_type) if fits else None, faults[:FAULTS_LIMIT]


def _find_more_faults(body: Body, known: Collection[FieldFault]) -> Iterator[FieldFault]:
    """Yield what the checks of a body find, other than in the fields with faults."""
    try:
        collect(body.checks())
    except InvalidFields as error:
        yield from leave_out(error.faults, known)


def _prune(value: Any, value_type: Any, place: str, faults: list[FieldFault]) -> bool:
    """Remove the parts of a value that do not fit its type, and note the fault of each.

    Return whether the rest fits. The decoder stops at the first fault, so each part that does not
    fit is searched recursively for the smallest parts that are wrong.
    """
    try:
        msgspec.convert(value, value_type)
    except msgspec.ValidationError as error:
        known = len(faults)
        if known < FAULTS_LIMIT:
            _prune_parts(value, value_type, place, faults)
            if len(faults) == known:
                faults.append(_fault(str(error), value_type, place))
                return False
        return _fits(value, value_type)
    return True


def _fits(value: Any, value_type: Any) -> bool:
    try:
        msgspec.convert(value, value_type)
    except msgspec.ValidationError:
        return False
    return True


def _prune_parts(value: Any, value_type: Any, place: str, faults: list[FieldFault]) -> None:
    """Prune the parts of a value, if it is of the kind that its type asks for."""
    for option in _list_options(value_type):
        origin, arguments = get_origin(option), get_args(option)
        if isinstance(value, dict) and _is_struct(option):
            _prune_fields(value, option, place, faults)
        elif isinstance(value, dict) and origin is dict:
            for key, each in list(islice(value.items(), ITEMS_LIMIT)):
                if not _prune(each, arguments[1], f"{place}.{key}", faults):
                    del value[key]
        elif isinstance(value, list) and origin in (list, tuple):
            _prune_items(value, arguments[0], place, faults)


def _prune_items(items: list[Any], item_type: Any, place: str, faults: list[FieldFault]) -> None:
    unfit = list[int]()
    for index, each in enumerate(items[:ITEMS_LIMIT]):
        if not _prune(each, item_type, f"{place}[{index}]", faults):
            unfit.append(index)
            # If the first of many numbers is wrong, often all of them are.
            if not isinstance(each, (dict, list)):
                break
    for index in reversed(unfit):
        del items[index]


def _prune_fields(value: dict[str, Any], struct: Any, place: str, faults: list[FieldFault]) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if struct.__struct_config__.forbid_unknown_fields:
        for name in [each for each in value if each not in fields]:
            del value[name]
            if len(faults) < FAULTS_LIMIT:
                reason = f"{UNKNOWN_FIELD}{did_you_mean(name, fields)}"
                faults.append(FieldFault(_join(place, name), reason))
    for name, field in fields.items():
        if name not in value:
            if field.required:
                faults.append(FieldFault(_join(place, name), _MISSING))
        elif not _prune(value[name], field.type, _join(place, name), faults):
            del value[name]


def _list_options(value_type: Any) -> list[Any]:
    """Return the types of a union, without their annotations."""
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
