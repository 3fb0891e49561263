"""Files with users: CSV and JSON lines, read line by line into the users that the API takes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from clarion.errors import StartError, count
from clarion.people.profile import Profile

# As long as the body of a request may be.
LINE_LIMIT_BYTES = 1_048_576
_LIST_SEPARATOR = ";"
_LISTS = {
    "tags",
    "enterprise.api_key_ids",
    "enterprise.webhook_ids",
    "intelligence.billing_history",
}
# What these hold is a number, true or false if it looks like one.
_WITH_NUMBERS = ("attributes.", "metadata.", "growth.nps", "backup.", "intelligence.", "consent.")
_TEXTS_OF_CONSENT = (".at", ".source", ".version")
FIELDS = (
    "id",
    "name",
    "email",
    "phone",
    "language",
    "timezone",
    "status",
    "tags",
    "attributes",
    "metadata",
    "consent",
    *Profile.__struct_fields__,
    "last_login_at",
)


class FileFormat(StrEnum):
    """The formats that can be imported."""

    CSV = "csv"
    JSONL = "jsonl"


class Fault(NamedTuple):
    """A fault of a line. `field` is empty if the line as a whole is invalid."""

    line: int
    field: str
    reason: str


class UserLine(NamedTuple):
    """A user, and the line of the file on which it begins."""

    line: int
    id: str | None
    body: bytes


def choose_format(path: Path, given: FileFormat | None) -> FileFormat:
    """Return the format: as given, or by the ending of the name."""
    if given is not None:
        return given
    ending = path.suffix.lower()
    if ending == ".csv":
        return FileFormat.CSV
    if ending in {".jsonl", ".ndjson", ".json"}:
        return FileFormat.JSONL
    raise StartError("--format: give csv or jsonl; the name of the file does not end like either")


def read_users(file: BinaryIO, kind: FileFormat) -> Iterator[UserLine | Fault]:
    """Yield the users of a file; `StartError` if the rest cannot be read."""
    read: Callable[[BinaryIO], Iterator[UserLine | Fault]]
    read = _read_csv if kind is FileFormat.CSV else _read_json_lines
    try:
        yield from read(file)
    except UnicodeDecodeError as error:
        raise StartError("The file is not UTF-8. Save it as UTF-8.") from error


def _read_json_lines(file: BinaryIO) -> Iterator[UserLine | Fault]:
    number = 0
    while raw := file.readline(LINE_LIMIT_BYTES + 1):
        number += 1
        if len(raw) > LINE_LIMIT_BYTES:
            yield Fault(number, "", f"is longer than {LINE_LIMIT_BYTES:,} bytes")
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(LINE_LIMIT_BYTES)
        elif text := raw.strip().removeprefix("\ufeff".encode()):
            yield _read_object(number, text)


def _read_object(number: int, text: bytes) -> UserLine | Fault:
    try:
        user = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Fault(number, "", "is not JSON")
    if not isinstance(user, dict):
        return Fault(number, "", "is not an object")
    known = user.get("id")
    return UserLine(number, known if isinstance(known, str) else None, text)


def _read_csv(file: BinaryIO) -> Iterator[UserLine | Fault]:
    rows = csv.reader(_read_text(file), strict=True)
    try:
        columns = _check_columns(next(rows, []))
        before = rows.line_num
        for row in rows:
            if row:
                yield _read_row(before + 1, columns, row)
            before = rows.line_num
    except csv.Error as error:
        raise StartError(f"line {rows.line_num}: is not CSV: {error}") from error


def _read_text(file: BinaryIO) -> Iterator[str]:
    """Yield lines with their ends: a value in quotes may have several."""
    encoding = "utf-8-sig"
    while raw := file.readline(LINE_LIMIT_BYTES + 1):
        if len(raw) > LINE_LIMIT_BYTES:
            raise csv.Error(f"it is longer than {LINE_LIMIT_BYTES:,} bytes")
        yield raw.decode(encoding)
        encoding = "utf-8"


def _check_columns(names: Sequence[str]) -> list[str]:
    columns = [name.strip() for name in names]
    if "id" not in columns:
        raise StartError("line 1: must name the columns, one of them `id`")
    for name in columns:
        if name.partition(".")[0] not in FIELDS:
            raise StartError(
                f"line 1: the column {name!r} is not a field of a user. The fields are "
                f"{', '.join(FIELDS)}; what is inside one is written like billing_address.city"
            )
    if len(set(columns)) < len(columns):
        raise StartError("line 1: a column appears twice")
    return columns


def _read_row(number: int, columns: Sequence[str], row: Sequence[str]) -> UserLine | Fault:
    if len(row) != len(columns):
        return Fault(number, "", f"has {count(len(row), 'value')}, not {len(columns)}")
    user: dict[str, Any] = {}
    for name, text in zip(columns, row, strict=True):
        if text:  # an empty cell says nothing about the field
            _put(user, name.split("."), _read_cell(name, text))
    return UserLine(number, user.get("id"), msgspec.json.encode(user))


def _put(user: dict[str, Any], path: Sequence[str], value: object) -> None:
    *outer, last = path if path[0] not in {"attributes", "metadata"} else _split_once(path)
    for name in outer:
        user = user.setdefault(name, {})
    user[last] = value


def _split_once(path: Sequence[str]) -> tuple[str, ...]:
    """Return the name of a free field as it is: it may have dots itself."""
    first, *rest = path
    return (first, ".".join(rest)) if rest else (first,)


def _read_cell(name: str, text: str) -> object:
    if name in _LISTS:
        return [part.strip() for part in text.split(_LIST_SEPARATOR) if part.strip()]
    if name.startswith(_WITH_NUMBERS) and not name.endswith(_TEXTS_OF_CONSENT):
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        return text if isinstance(value, (dict, list)) or value is None else value
    return text
