"""A JSON body becomes its type, or a fault that names its field."""

import msgspec
import pytest

from clarion.errors import InvalidFields, MalformedBody
from clarion.http.decoding import decode


class Part(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    names: list[str] = []


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    part: Part
    table: dict[str, int] = {}


read = msgspec.json.Decoder(Whole).decode


def test_what_fits_is_read() -> None:
    assert decode(read, b'{"part": {"number": 7}}') == Whole(Part(7))
    assert decode(read, memoryview(b'{"part": {"number": 7}}')) == Whole(Part(7))


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (b"{}", "part", "is required"),
        (b'{"part": {}}', "part.number", "is required"),
        (b'{"part": {"number": "7"}}', "part.number", "expected `int`, got `str`"),
        (b'{"part": {"number": 7, "x": 1}}', "part.x", "there is no such field"),
        (b'{"whole": 1}', "whole", "there is no such field"),
        (b'{"part": {"number": 7, "names": ["a", 1]}}', "part.names[1]", "expected `str`"),
        (b'{"part": {"number": 7}, "table": {"a": "b"}}', "table[...]", "expected `int`"),
        (b"[]", "body", "expected `object`, got `array`"),
        (b"7", "body", "expected `object`, got `int`"),
    ],
)
def test_what_does_not_fit_is_named(body: bytes, field: str, reason: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        decode(read, body)
    (fault,) = caught.value.faults
    assert fault.field == field
    assert fault.reason.startswith(reason)


@pytest.mark.parametrize("body", [b"", b"{", b"nul", b"\xff"])
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        decode(read, body)


def test_nesting_without_end_is_malformed() -> None:
    with pytest.raises(MalformedBody):
        decode(msgspec.json.decode, b"[" * 100_000 + b"]" * 100_000)
