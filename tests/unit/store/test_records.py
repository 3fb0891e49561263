"""Records: the columns, writers and readers of tables."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

import pytest

from clarion.store.records import Record


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@dataclass(frozen=True, slots=True)
class Maker:
    name: str | None = None
    town: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    id: str
    colour: Colour
    size: Size | None = None
    is_new: bool
    maker: Maker
    tags: tuple[str, ...] = ()
    notes: dict[str, object] = field(default_factory=dict)
    hash: bytes = b""


class Pair(NamedTuple):
    left: int
    right: Colour | None


THING = Thing(
    id="t", colour=Colour.RED, size=Size.LARGE, is_new=True, maker=Maker("Ana"), tags=("a", "b")
)
THINGS = Record(Thing, inline=("maker",))


def test_columns_are_the_fields_in_order_with_inlined_ones_in_their_place() -> None:
    assert THINGS.columns == "id, colour, size, is_new, name, town, tags, notes, hash"
    assert THINGS.parameters == ":id, :colour, :size, :is_new, :name, :town, :tags, :notes, :hash"


def test_values_are_what_a_database_stores() -> None:
    assert THINGS.values(THING) == {
        "id": "t",
        "colour": "red",
        "size": 3,
        "is_new": 1,
        "name": "Ana",
        "town": None,
        "tags": '["a","b"]',
        "notes": "{}",
        "hash": b"",
    }


def test_a_row_that_was_written_is_read_back_as_the_same_object() -> None:
    row = THINGS.bind(THING)
    assert row == tuple(THINGS.values(THING).values())
    assert THINGS.read(row) == THING
    assert THINGS.read((*row, "selected beside the columns")) == THING


def test_null_stays_none_whatever_the_type() -> None:
    pairs = Record(Pair)
    assert pairs.read((1, None)) == Pair(1, None)
    assert pairs.values(Pair(1, None)) == {"left": 1, "right": None}
    assert pairs.read((2, "red")) == Pair(2, Colour.RED)


def test_what_can_be_changed_is_not_shared_between_objects() -> None:
    row = tuple(THINGS.values(THING).values())
    assert THINGS.read(row).notes is not THINGS.read(row).notes


def test_assignments_name_some_columns_or_all_others() -> None:
    assert Record(Pair).assign("left") == "left = excluded.left"
    assert Record(Pair).assign_others("left", source=":{}") == "right = :right"


def test_a_column_that_is_not_there_is_an_error_where_the_statement_is_made() -> None:
    with pytest.raises(TypeError, match="no such columns"):
        THINGS.assign("weight")


def test_a_field_can_have_a_codec_of_its_own() -> None:
    things = Record(
        Thing, inline=("maker",), codecs={"tags": (" ".join, lambda text: tuple(text.split()))}
    )
    assert things.values(THING)["tags"] == "a b"
    assert things.read(tuple(things.values(THING).values())) == THING


def test_a_field_left_out_is_no_column_and_is_read_as_its_default() -> None:
    class Point(NamedTuple):
        x: int
        y: int = 7
        z: int = 0

    points = Record(Point, without=("y",))
    assert points.names == ("x", "z")
    assert points.bind(Point(1, 2, 3)) == (1, 3)
    assert points.read((1, 3)) == Point(1, 7, 3)
