"""The updates that live clients receive."""

import json

import pytest

from clarion.inbox.updates import encode, to_update
from tests.factories import NOW
from tests.unit.inbox.memory import make_notification


@pytest.mark.parametrize(
    ("changes", "update_type"),
    [
        ({}, "notification"),
        ({"read_at": NOW}, "read"),
        ({"dismissed_at": NOW}, "dismissed"),
        ({"read_at": NOW, "dismissed_at": NOW}, "dismissed"),
    ],
)
def test_the_type_of_an_update_follows_from_the_notification(
    changes: dict[str, int], update_type: str
) -> None:
    update = json.loads(encode(to_update(make_notification(5, **changes), 9)))
    assert set(update) == {"type", "unread_count", "sequence", "item"}
    assert (update["type"], update["unread_count"], update["sequence"]) == (update_type, 9, 5)
