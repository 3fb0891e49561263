"""Files with users, as `clarion user import` reads them."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clarion.cli.user_files import (
    FIELDS,
    LINE_LIMIT_BYTES,
    Fault,
    FileFormat,
    UserLine,
    choose_format,
    read_users,
)
from clarion.cli.user_import import BATCH_BYTES, USERS_AT_ONCE, split
from clarion.errors import StartError
from clarion.people.api.batch import BatchUser

COLUMNS = (
    "id,name,email,tags,attributes.plan,attributes.size,attributes.a.b,metadata.zip,"
    "billing_address.city,growth.nps,backup.auto_backup,consent.news.granted,consent.news.version"
)
ALL = "\r\n".join(
    [
        "\ufeff" + COLUMNS,
        'ana,"Ana\n""Ü""",a@example.com,vip; beta ;,pro,7,true,01234,Köln,9,true,false,2',
        "",
        "bo" + "," * 12,
        "",
    ]
)


def read(text: str | bytes, kind: FileFormat) -> list[UserLine | Fault]:
    data = text.encode() if isinstance(text, str) else text
    return list(read_users(io.BytesIO(data), kind))


def decoded(found: list[UserLine | Fault]) -> list[tuple[int, Any]]:
    return [
        (each.line, msgspec.json.decode(each.body)) for each in found if isinstance(each, UserLine)
    ]


def test_a_column_is_a_field_or_a_part_of_one() -> None:
    assert decoded(read(ALL, FileFormat.CSV)) == [
        (
            2,
            {
                "id": "ana",
                "name": 'Ana\n"Ü"',
                "email": "a@example.com",
                "tags": ["vip", "beta"],
                "attributes": {"plan": "pro", "size": 7, "a.b": True},
                "metadata": {"zip": "01234"},
                "billing_address": {"city": "Köln"},
                "growth": {"nps": 9},
                "backup": {"auto_backup": True},
                "consent": {"news": {"granted": False, "version": "2"}},
            },
        ),
        (5, {"id": "bo"}),
    ]


def test_the_columns_are_those_of_the_api() -> None:
    assert set(FIELDS) == set(BatchUser.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "one of them `id`"),
        ("name,email\nAna,a\n", "one of them `id`"),
        ("id,colour\nana,red\n", "'colour' is not a field"),
        ("id,name,name\n", "twice"),
        ('id,name\nana,"x\n', "line 2: is not CSV"),
        (b"id,name\nana,\xff\n", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_explained(text: str | bytes, reason: str) -> None:
    with pytest.raises(StartError, match=reason):
        read(text, FileFormat.CSV)


def test_a_row_with_too_few_values_is_a_fault_of_its_line() -> None:
    found = read("id,name\nana\nbo,Bo\n", FileFormat.CSV)
    assert found[0] == Fault(2, "", "has 1 value, not 2")
    assert decoded(found) == [(3, {"id": "bo", "name": "Bo"})]


def test_each_line_is_an_object() -> None:
    long = b'{"id": "' + b"x" * LINE_LIMIT_BYTES + b'"}\n'
    text = b'\xef\xbb\xbf{"id": "ana"}\n\n{"id":\n[7]\n' + long + b'{"name": "x"}'
    found = read(text, FileFormat.JSONL)
    assert [each for each in found if isinstance(each, Fault)] == [
        Fault(3, "", "is not JSON"),
        Fault(4, "", "is not an object"),
        Fault(5, "", f"is longer than {LINE_LIMIT_BYTES:,} bytes"),
    ]
    assert decoded(found) == [(1, {"id": "ana"}), (6, {"name": "x"})]
    assert [each.id for each in found if isinstance(each, UserLine)] == ["ana", None]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", "csv"), ("a.CSV", "csv"), ("a.jsonl", "jsonl"), ("a.ndjson", "jsonl")],
)
def test_the_name_tells_the_format(name: str, kind: str) -> None:
    assert choose_format(Path(name), None) == kind
    assert choose_format(Path(name), FileFormat.CSV) == "csv"


def test_a_name_that_tells_no_format_is_refused() -> None:
    with pytest.raises(StartError, match="--format"):
        choose_format(Path("-"), None)


def lines(*ids: str | None, size: int = 10) -> list[UserLine | Fault]:
    return [UserLine(number, each, b"x" * size) for number, each in enumerate(ids, 1)]


def test_batches_are_bounded_and_have_each_user_once() -> None:
    many = lines(*(f"u{n}" for n in range(USERS_AT_ONCE + 1)))
    assert [len(batch) for batch in split(many)] == [USERS_AT_ONCE, 1]
    assert [len(batch) for batch in split(lines("a", "b", size=BATCH_BYTES))] == [1, 1]
    repeated = lines("a", "b", "a", None, None)
    assert [[each.line for each in batch] for batch in split(repeated)] == [[1, 2], [3, 4, 5]]
    assert list(split([])) == []
