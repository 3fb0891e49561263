"""Queries: what a fast route reads is as in the framework; every fault names its parameter."""

import msgspec
import pytest

from clarion.errors import InvalidFields
from clarion.http.queries import check_names, read_query


class Wanted(msgspec.Struct):
    unread: bool = False
    category: str | None = None
    limit: int = 20


@pytest.mark.parametrize(
    ("query", "read"),
    [
        (b"", Wanted()),
        (b"unread=true", Wanted(unread=True)),
        (b"unread=0&limit=7", Wanted(limit=7)),
        (b"limit=1&limit=2", Wanted(limit=2)),
        (b"category=", Wanted(category="")),
        (b"category=a%20b+c", Wanted(category="a b c")),
    ],
)
def test_parameters_have_their_types(query: bytes, read: Wanted) -> None:
    assert read_query(query, Wanted) == read


@pytest.mark.parametrize(
    ("query", "faults"),
    [
        (b"limit=x", [("limit", "must be an integer")]),
        (b"limit=", [("limit", "must be an integer")]),
        (b"unread=maybe", [("unread", "must be true or false")]),
        (
            b"limit=x&unread=maybe&category=a",
            [("unread", "must be true or false"), ("limit", "must be an integer")],
        ),
    ],
)
def test_every_fault_is_named(query: bytes, faults: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidFields) as refused:
        read_query(query, Wanted)
    assert [(each.field, each.reason) for each in refused.value.faults] == faults


def test_a_name_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidFields) as refused:
        check_names(b"limit=1&limt=2&unred=", {"unread", "limit"})
    reason = "is not a parameter of this operation; it takes limit, unread"
    assert [(each.field, each.reason) for each in refused.value.faults] == [
        ("limt", f"{reason}; did you mean limit?"),
        ("unred", f"{reason}; did you mean unread?"),
    ]


def test_a_response_names_ten_of_many_unknown_parameters() -> None:
    query = "&".join(f"p{number}=" for number in range(1_000)).encode()
    with pytest.raises(InvalidFields) as refused:
        check_names(query, ())
    assert [each.field for each in refused.value.faults] == [f"p{number}" for number in range(10)]
    assert refused.value.faults[0].reason.endswith("it takes none")


def test_known_names_pass() -> None:
    check_names(b"limit=1&unread=true&limit=", {"unread", "limit"})
