"""A JSON body becomes its type, or a fault that names its field."""

from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Literal

import msgspec
import pytest

from clarion.errors import InvalidFields, MalformedBody
from clarion.http.bodies import Body, Checks
from clarion.http.decoding import FAULTS_LIMIT, decode, decode_partly


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    names: list[str] = []


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    part: Part
    table: dict[str, int] = {}
    colours: list[Colour] | None = None
    size: Annotated[int, msgspec.Meta(ge=1, le=3)] | Literal["all"] | None = None
    name: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    at: datetime | None = None
    by_name: dict[str, Colour] = {}
    described: Annotated[Colour | None, msgspec.Meta(description="A colour.")] = None


WHOLE = msgspec.json.Decoder(Whole)


def test_what_fits_is_read() -> None:
    assert decode(WHOLE, b'{"part": {"number": 7}}') == Whole(Part(7))
    assert decode(WHOLE, memoryview(b'{"part": {"number": 7}}')) == Whole(Part(7))


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (b"{}", "part", "is required"),
        (b'{"part": {}}', "part.number", "is required"),
        (b'{"part": {"number": "7"}}', "part.number", "must be an integer, not a string"),
        (b'{"part": {"number": 7, "x": 1}}', "part.x", "there is no such field"),
        (b'{"part": {"number": 7}, "whole": 1}', "whole", "there is no such field"),
        (
            b'{"part": {"number": 7, "names": ["a", 1]}}',
            "part.names[1]",
            "must be a string, not an integer",
        ),
        (
            b'{"part": {"number": 7}, "table": {"a": "b"}}',
            "table.a",
            "must be an integer, not a string",
        ),
        (b"[]", "body", "must be an object, not an array"),
        (b"7", "body", "must be an object, not an integer"),
    ],
)
def test_what_does_not_fit_is_named(body: bytes, field: str, reason: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        decode(WHOLE, body)
    (fault,) = caught.value.faults
    assert fault.field == field
    assert fault.reason.startswith(reason)


@pytest.mark.parametrize(
    ("value", "field", "reason"),
    [
        (b'"colours": ["red", "green"]', "colours[1]", "must be one of red, blue"),
        (b'"by_name": {"a": "green"}', "by_name.a", "must be one of red, blue"),
        (b'"described": "green"', "described", "must be one of red, blue"),
        (b'"size": "none"', "size", "must be one of all"),
        (b'"size": 4', "size", "must be an integer of at most 3"),
        (b'"size": true', "size", "must be an integer or a string or null, not true or false"),
        (b'"name": ""', "name", "must be a string with a length of at least 1"),
        (b'"at": "soon"', "at", "must be a time, like 2026-01-31T12:00:00Z"),
    ],
)
def test_a_fault_says_what_would_be_right(value: bytes, field: str, reason: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        decode(WHOLE, b'{"part": {"number": 7}, %s}' % value)
    (fault,) = caught.value.faults
    assert (fault.field, fault.reason) == (field, reason)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "The request has no body; send JSON."),
        (b"{", "The body is not valid JSON: it ends too early at line 1, column 2."),
        (b"nul", "The body is not valid JSON: it ends too early at line 1, column 4."),
        (b"\xff", "The body is not valid JSON: invalid character at line 1, column 1."),
        (
            b'{"name": "a",\n "size": 1,,\n "at": null}',
            "The body is not valid JSON: object keys must be strings at line 2, column 12.",
        ),
        (
            '{"name": "äöü" "size": 1}'.encode(),
            "The body is not valid JSON: expected ',' or '}' at line 1, column 16.",
        ),
        (
            b'{"name": "secret"} secret',
            "The body is not valid JSON: trailing characters at line 1, column 20.",
        ),
        (b'{"name": "secret\xff"}', "The body is not UTF-8 at line 1, column 17."),
    ],
)
def test_malformed_json_is_explained_with_its_place(body: bytes, detail: str) -> None:
    with pytest.raises(MalformedBody) as caught:
        decode(WHOLE, body)
    assert caught.value.detail == detail


def test_nesting_without_end_is_malformed() -> None:
    with pytest.raises(MalformedBody, match="nested too deeply"):
        decode(msgspec.json.Decoder(), b"[" * 100_000 + b"]" * 100_000)


def test_all_faults_are_named_at_once() -> None:
    body = b"""{"part": {"number": "7", "names": [1, "a", 2], "x": 1}, "colours": ["green", "red"],
    "size": 4, "name": "", "at": "soon", "by_name": {"a": "red", "b": 1}, "y": 1}"""
    with pytest.raises(InvalidFields) as caught:
        decode(WHOLE, body)
    assert sorted(fault.field for fault in caught.value.faults) == [
        "at",
        "by_name.b",
        "colours[0]",
        "name",
        "part.names[0]",
        "part.number",
        "part.x",
        "size",
        "y",
    ]


def test_a_misspelt_field_is_followed_by_the_one_that_is_like_it() -> None:
    with pytest.raises(InvalidFields) as caught:
        decode(WHOLE, b'{"part": {"nubmer": 1, "number": 1}, "Colour": [], "zzz": 1}')
    assert {each.field: each.reason for each in caught.value.faults} == {
        "part.nubmer": "there is no such field; did you mean number?",
        "Colour": "there is no such field; did you mean colours?",
        "zzz": "there is no such field",
    }


class Checked(Body):
    name: str = ""
    size: int = 1
    tags: list[str] = msgspec.field(default_factory=list)

    def checks(self) -> Checks:
        return {name: partial(self._check, name) for name in ("name", "size", "tags")}

    def _check(self, name: str) -> None:
        if getattr(self, name) in ("", 0, ["x"]):
            raise ValueError("must be something")


def test_the_checks_of_other_fields_are_made_beside_a_fault() -> None:
    """Their faults would come only after the first is mended."""
    body = b'{"name": "", "size": "7", "tags": ["x", 1], "nmae": 1}'
    with pytest.raises(InvalidFields) as caught:
        decode(msgspec.json.Decoder(Checked), body)
    # What is left of a field with a fault is not checked.
    assert [each.field for each in caught.value.faults] == ["nmae", "size", "tags[1]", "name"]
    # Where nothing is wrong with the types, the handler makes the checks.
    assert decode(msgspec.json.Decoder(Checked), b'{"name": ""}') == Checked(name="")


def test_what_is_left_without_the_faults_is_read() -> None:
    body = (
        b'{"part": {"number": 7, "names": ["a", 1, "b"], "x": 1}, "size": 9, "by_name": {"a": 1}}'
    )
    rest, faults = decode_partly(WHOLE, body)
    assert rest == Whole(Part(7, ["a", "b"]))
    assert [each.field for each in faults] == ["part.x", "part.names[1]", "size", "by_name.a"]
    rest, faults = decode_partly(WHOLE, b'{"size": 9}')
    assert rest is None  # it cannot be without the part
    assert [each.field for each in faults] == ["part", "size"]


def test_so_many_faults_are_named_and_no_more() -> None:
    body = msgspec.json.encode({"part": {str(number): 1 for number in range(100_000)}})
    with pytest.raises(InvalidFields) as caught:
        decode(WHOLE, body)
    assert len(caught.value.faults) == FAULTS_LIMIT


def test_a_fault_far_down_a_list_is_named_all_the_same() -> None:
    body = msgspec.json.encode({"part": {"number": 7, "names": ["a"] * 5_000 + [1]}})
    with pytest.raises(InvalidFields) as caught:
        decode(WHOLE, body)
    assert [fault.field for fault in caught.value.faults] == ["part.names[5000]"]
