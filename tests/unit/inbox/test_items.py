"""The inbox on the wire."""

import json

import pytest

from clarion.errors import InvalidFields
from clarion.events.model import Actor, Content, Target
from clarion.inbox.items import encode, to_item, to_update
from clarion.inbox.sequences import read_sequence
from tests.factories import NOW
from tests.unit.inbox.memory import make_notification


def test_an_item_has_all_its_fields_and_no_others() -> None:
    content = Content(data={"a": [1]}, actor=Actor("bo"), target=Target(type="post"))
    made = make_notification(5, content=content, count=3, read_at=NOW, title="T")
    assert json.loads(encode(to_item(made))) == {
        "id": "n5",
        "type": "comment",
        "category": "social",
        "priority": "high",
        "title": "T",
        "body": "said something",
        "deeplink": None,
        "image_url": None,
        "actor": {"id": "bo", "name": None},
        "target": {"id": None, "type": "post"},
        "data": {"a": [1]},
        "count": 3,
        "read_at": "2026-01-01T00:00:00.000Z",
        "dismissed_at": None,
        "created_at": "2026-01-01T00:00:00.000Z",
        "sequence": 5,
    }


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "notification"),
        ({"read_at": NOW}, "read"),
        ({"dismissed_at": NOW}, "dismissed"),
        ({"read_at": NOW, "dismissed_at": NOW}, "dismissed"),
    ],
)
def test_an_update_says_what_became_of_it(changes: dict[str, int], kind: str) -> None:
    update = json.loads(encode(to_update(make_notification(5, **changes), 9)))
    assert set(update) == {"type", "unread_count", "sequence", "item"}
    assert (update["type"], update["unread_count"], update["sequence"]) == (kind, 9, 5)


def test_a_sequence_is_a_number() -> None:
    assert read_sequence("0", "after") == 0
    assert read_sequence("9223372036854775807", "after") == (1 << 63) - 1


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "x", "٣", "9223372036854775808", "1" * 99])
def test_what_is_none_is_named(text: str) -> None:
    with pytest.raises(InvalidFields, match="after"):
        read_sequence(text, "after")
