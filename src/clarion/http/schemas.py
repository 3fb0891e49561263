"""JSON Schemas of bodies and parameters, with plain names, described by the docstrings of fields.

A field is described by the string below it, or by the `Meta` of its type:

    user_id: UserId
    sent_at: Timestamp
    \"\"\"When the provider accepted the message.\"\"\"
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import inspect as types

from clarion.fields import INSTEAD

REFERENCE = "#/components/schemas/{name}"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9.\-_]")
_LINE_END = re.compile(r"(?<!\n)\n(?!\n) *")
_NAMED = (types.StructType, types.DataclassType, types.EnumType)


class Schemas:
    """Collects where schemas are needed, then makes all of them at once."""

    def __init__(self) -> None:
        self._wanted: list[tuple[dict[str, Any], Sequence[Any]]] = []

    def want(self, holder: dict[str, Any], wanted: Any) -> None:
        """Let `holder` get the schema of a type."""
        self._wanted.append((holder, _list_options(wanted)))

    def fill(self) -> dict[str, Any]:
        """Give every holder its schema; return the components that these refer to."""
        all_types = [option for _, options in self._wanted for option in options]
        schemas, components = msgspec.json.schema_components(all_types, ref_template=REFERENCE)
        left = iter(schemas)
        for holder, options in self._wanted:
            first, *more = islice(left, len(options))
            holder["schema"] = {"anyOf": [first, *more]} if more else first
        names = {}
        for named in set(_list_classes(types.multi_type_info(all_types))):
            generated = _NOT_IN_NAMES.sub("_", _write_name(named))
            names[generated] = name_of(named)
            _describe(components[generated], named)
        renamed = {names[name]: component for name, component in sorted(components.items())}
        if len(renamed) != len(components):
            raise ValueError(f"Two types have the same name: {sorted(names.values())}")
        references = {REFERENCE.format(name=each): names[each] for each in names}
        for part in (*schemas, *renamed.values()):
            _rename(part, references)
        return dict(sorted(renamed.items()))


def name_of(named: Any) -> str:
    """Return the name of a class in the document: `Event` for `EventView`."""
    for inner in get_args(named):  # of a page of a list
        return f"{name_of(inner)}List"
    return str(named.__name__).removesuffix("View")


def _list_options(wanted: Any) -> Sequence[Any]:
    """Return the members of a union of objects, which msgspec could not distinguish."""
    options = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else ()
    return options if len(options) > 1 and NoneType not in options else (wanted,)


def join_lines(text: str) -> str:
    """Return a docstring with a line for each paragraph."""
    return _LINE_END.sub(" ", inspect.cleandoc(text)).strip()


def drop_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is left out rather than null."""
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if not options:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**options[0], **rest} if len(options) == 1 else {**rest, "anyOf": options}


def _write_name(named: Any) -> str:
    """Return the name that msgspec generates for a class."""
    origin = get_origin(named)
    if origin is None:
        return str(named.__name__)
    arguments = (
        each.__name__ if isinstance(each, type) else repr(each) for each in get_args(named)
    )
    return f"{origin.__name__}[{', '.join(arguments)}]"


def _list_classes(found: Sequence[types.Type]) -> Iterator[Any]:
    """Yield each class that has a schema of its own."""
    seen, waiting = set(), list(found)
    while waiting:
        each = waiting.pop()
        if isinstance(each, _NAMED):
            if each.cls in seen:
                continue
            seen.add(each.cls)
            yield each.cls
        waiting += _parts_of(each)


def _parts_of(found: types.Type) -> Sequence[types.Type]:
    match found:
        case types.StructType() | types.DataclassType():
            return [field.type for field in found.fields]
        case types.Metadata():
            return [found.type]
        case types.UnionType():
            return found.types
        case types.CollectionType():
            return [found.item_type]
        case types.DictType():
            return [found.key_type, found.value_type]
        case _:
            return ()


def _describe(component: dict[str, Any], named: Any) -> None:
    component.pop("title", None)
    if "description" in component:
        component["description"] = join_lines(component["description"])
    described = dict[str, str]()
    named = get_origin(named) or named
    for each in reversed(named.__mro__):
        described |= _read_docstrings(each)
    encoded = getattr(named, "__struct_encode_fields__", None)
    if encoded is not None:
        pairs = zip(named.__struct_fields__, encoded, strict=True)
        described = {to: described[name] for name, to in pairs if name in described}
    properties = component.get("properties", {})
    for name, given in list(properties.items()):
        field = properties[name] = given.get(INSTEAD, given)
        if name in described:
            field["description"] = described[name]
            for option in field.get("anyOf", ()):  # what the type alone would say
                option.pop("description", None)
        _write_default(field)


def _write_default(field: dict[str, Any]) -> None:
    """Say in words what a field is if it is left out.

    Client generators assume that a field with a default is always present.
    """
    default = field.pop("default", None)
    if default not in (None, [], {}) and "description" in field:
        text = default if isinstance(default, str) else msgspec.json.encode(default).decode()
        field["description"] += f" Default: `{text}`."


def _read_docstrings(named: type) -> dict[str, str]:
    """Return the string below each field of a class."""
    if "__annotations__" not in vars(named):
        return {}
    body = _read_classes(named.__module__).get(named.__qualname__, [])
    found = {}
    for field, below in pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        name, text = field.target, below.value
        if isinstance(name, ast.Name) and isinstance(text, ast.Constant):
            found[name.id] = join_lines(str(text.value))
    return found


@cache
def _read_classes(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class of a module; none if its source is not installed."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}


def _rename(part: Any, references: dict[str, str]) -> None:
    """Change all references inside a schema."""
    if isinstance(part, list):
        for each in part:
            _rename(each, references)
    elif isinstance(part, dict):
        if "$ref" in part:
            part["$ref"] = REFERENCE.format(name=references[part["$ref"]])
        for each in part.values():
            _rename(each, references)
