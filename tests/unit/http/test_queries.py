"""The query of a fast route: read as the framework reads it, every fault with its parameter."""

import msgspec
import pytest

from clarion.errors import InvalidFields
from clarion.http.queries import read_query


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
        (b"other=1", Wanted()),
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
