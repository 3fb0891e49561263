"""A notification as the API shows it."""

import json

import msgspec

from clarion.history.model import Actor, Content, Target
from clarion.inbox.views import to_item
from tests.factories import NOW
from tests.unit.inbox.memory import make_notification


def test_an_item_has_all_its_fields_and_no_others() -> None:
    content = Content(data={"a": [1]}, actor=Actor("bo"), target=Target(type="post"))
    made = make_notification(5, content=content, count=3, read_at=NOW, title="T")
    assert json.loads(msgspec.json.encode(to_item(made))) == {
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
