"""One declaration per table: the type of its rows gives the columns, the writer and the reader.

A field of a record is a column of the same name. Texts, numbers and bytes are stored as they are,
enums by their value, flags as 0 or 1, everything else (lists, objects) as JSON, unless `codecs`
names the field. A field named in `inline` has its own fields among the columns instead. A field
named in `without` has no column; objects that are read have its default.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from clarion.store.statement import Row, Value

# How a value is written to a row and read from it; None: as it is.
Codec = tuple[Callable[[Any], Value] | None, Callable[[Any], Any] | None]

T = TypeVar("T")
_PLAIN = (str, int, float, bytes)
_encode = msgspec.json.Encoder().encode


class Record(Generic[T]):
    """How objects of one type are rows of one table.

    `columns` and `parameters` are the two halves of an INSERT; `bind` returns the row for an INSERT
    without other parameters, `values` the same by name. `read` takes a row whose first values are
    the columns in that order; further columns are ignored.
    """

    def __init__(
        self,
        row_type: type[T],
        *,
        inline: Collection[str] = (),
        without: Collection[str] = (),
        codecs: Mapping[str, Codec] = types.MappingProxyType({}),
    ) -> None:
        listed = _list_fields(row_type, inline, codecs)
        columns = tuple(each for each in listed if each.name not in without)
        self.names = tuple(each.name for each in columns)
        self.columns = ", ".join(self.names)
        self.parameters = ", ".join(f":{name}" for name in self.names)
        scope: dict[str, Any] = {}
        written = {each.name: _written(each, scope) for each in columns}
        pairs = ", ".join(f"{name!r}: {value}" for name, value in written.items())
        row = "".join(f"{value}, " for value in written.values())
        self.values: Callable[[T], dict[str, Value]] = _compile(f"lambda row: {{{pairs}}}", scope)
        self.bind: Callable[[T], Row] = _compile(f"lambda row: ({row})", scope)
        self.read: Callable[[Row], T] = _compile_reader(row_type, columns)

    def first(self, rows: Sequence[Row]) -> T | None:
        """Return the object of the first row, or None if there are no rows."""
        return self.read(rows[0]) if rows else None

    def assign(self, *names: str, source: str = "excluded.{}") -> str:
        """Return `name = excluded.name, …` for some columns, for an upsert."""
        return ", ".join(f"{name} = {source.format(name)}" for name in self._check(names))

    def assign_others(self, *names: str, source: str = "excluded.{}") -> str:
        """Return the same for all columns except these."""
        left_out = set(self._check(names))
        return self.assign(*(name for name in self.names if name not in left_out), source=source)

    def _check(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(names) - set(self.names):
            raise TypeError(f"no such columns: {sorted(unknown)}")
        return names


class _Field(msgspec.Struct, frozen=True):
    """A column, the path of its value in the object, and how it is converted."""

    name: str
    path: tuple[str, ...]
    write: Callable[[Any], Value] | None
    read: Callable[[Any], Any] | None
    is_optional: bool


def _list_fields(
    row_type: type, inline: Collection[str], codecs: Mapping[str, Codec], *path: str
) -> Iterator[_Field]:
    for name, hint in _hints_of(row_type):
        if name in inline:
            yield from _list_fields(hint, (), codecs, *path, name)
            continue
        plain, is_optional = _strip_none(hint)
        write, read = codecs.get(name) or _codec_of(plain)
        yield _Field(name, (*path, name), write, read, is_optional)


def _hints_of(row_type: type) -> list[tuple[str, Any]]:
    hints = get_type_hints(row_type)
    return [(name, hints[name]) for name in _names_of(row_type)]


def _names_of(row_type: Any) -> Sequence[str]:
    if is_dataclass(row_type):
        return [each.name for each in fields(row_type)]
    is_struct = issubclass(row_type, msgspec.Struct)
    names: tuple[str, ...] = row_type.__struct_fields__ if is_struct else row_type._fields
    return names


def _strip_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    (plain,) = [each for each in get_args(hint) if each is not type(None)]
    return plain, True


def _codec_of(hint: Any) -> Codec:
    if hint is bool:
        return int, bool
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _write_enum, {each.value: each for each in hint}.__getitem__
    if hint in _PLAIN:
        return None, None
    return _write_json, _compile_json_reader(hint)


def _write_enum(member: Enum) -> Value:
    value: Value = member.value
    return value


def _write_json(value: object) -> str:
    return "[]" if value == () else _encode(value).decode()


def _compile_json_reader(hint: Any) -> Callable[[str], Any]:
    decode = msgspec.json.Decoder(hint).decode
    empty = {text: decode(text) for text in ("[]", "{}") if _fits(decode, text)}

    def read(text: str) -> Any:
        # Most are empty, and a batch reads a thousand of them: these are not decoded again.
        known = empty.get(text)
        return decode(text) if known is None else known

    return read


def _fits(decode: Callable[[str], Any], text: str) -> bool:
    try:
        # Mutable values must not be shared.
        return not isinstance(decode(text), (list, dict))
    except msgspec.ValidationError:
        return False


def _written(each: _Field, scope: dict[str, Any]) -> str:
    """Return the expression for a column's value; add the functions it calls to the scope."""
    value = "row." + ".".join(each.path)
    if each.write is not _write_enum:
        return _convert(each, value, each.write, scope)
    # An attribute costs a third of a call, and most rows have several enums.
    member = f"{value}._value_"
    return f"None if {value} is None else {member}" if each.is_optional else member


def _compile_reader(row_type: type[T], columns: tuple[_Field, ...]) -> Callable[[Row], T]:
    """Return a reader as fast as one written by hand: pages and batches read many rows."""
    scope: dict[str, Any] = {"make": row_type}
    arguments: dict[str, str] = {}
    inlined: dict[str, list[str]] = {}
    hints = get_type_hints(row_type)
    for number, each in enumerate(columns):
        value = _convert(each, f"row[{number}]", each.read, scope)
        if len(each.path) == 1:
            arguments[each.name] = value
        else:
            inlined.setdefault(each.path[0], []).append(f"{each.name}={value}")
    for name, given in inlined.items():
        scope[f"make_{name}"] = hints[name]
        arguments[name] = f"make_{name}({', '.join(given)})"
    made = ", ".join(f"{name}={value}" for name, value in arguments.items())
    reader: Callable[[Row], T] = _compile(f"lambda row: make({made})", scope)
    return reader


def _convert(
    column: _Field, value: str, convert: Callable[[Any], Any] | None, scope: dict[str, Any]
) -> str:
    if convert is None:
        return value
    scope[f"convert_{column.name}"] = convert
    converted = f"convert_{column.name}({value})"
    return f"None if {value} is None else {converted}" if column.is_optional else converted


def _compile(source: str, scope: dict[str, Any]) -> Any:
    # The source contains field names only, as in the code that dataclasses generate.
    return eval(source, scope)  # noqa: S307
