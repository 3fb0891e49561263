"""Puts notifications into inboxes, as the pipeline does, and lists them."""

from itertools import count
from typing import Any

import msgspec

from clarion.catalog.model import Category, Priority
from clarion.history.model import Actor, Content, Notification, Target
from clarion.inbox.model import InboxQuery
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.inbox.sql.numbers import NEXT, REMEMBER, TAKE
from clarion.inbox.sql.pages import SqlInboxPages
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import NOW

_numbers = count(1)
ADD = statement(
    "put_into_inbox",
    f"""INSERT INTO notifications (app_id, user_id, id, event_id, type, category, priority, title,
    body, content, count, is_shown, sequence, created_at) VALUES (:app_id, :user_id, :id, :event_id,
    'comment', :category, 1, :title, 'said something', :content, 1, :is_shown,
    CASE WHEN CAST(:is_shown AS INTEGER) = 1 THEN {NEXT} ELSE 0 END, :now)
    RETURNING sequence""",  # noqa: S608 - NEXT is a constant
)
CONTENT = Content(
    data={"snippet": "hé"},
    actor=Actor("bo", "Bo"),
    target=Target("p1", "post"),
    deeplink="app://p1",
    image_url="https://example.com/p.png",
)
_WIRE = """{"data":{"snippet":"hé"},"actor":{"id":"bo","name":"Bo"},"target":{"id":"p1",
"type":"post"},"deeplink":"app://p1","image_url":"https://example.com/p.png"}"""


def new_notification_id() -> str:
    """Return an id that sorts after all that were made before."""
    return f"0190f000-0000-7000-c000-{next(_numbers):012x}"


async def put(
    engine: Engine, app_id: str, user_id: str = "ana", *, is_shown: bool = True, **changes: Any
) -> Notification:
    """Commit a notification and return it as the store should have it."""
    values: dict[str, Any] = {
        "id": new_notification_id(),
        "category": Category.SOCIAL,
        "title": "Bo",
        "now": NOW,
    } | changes
    of_user = {"app_id": app_id, "user_id": user_id}
    add = ADD.step(**of_user, **values, event_id="e", content=_WIRE, is_shown=int(is_shown))
    steps = (TAKE.step(**of_user, unread=int(is_shown)), add, REMEMBER.step(**of_user))
    done = await engine.write(Unit(user_id, steps))
    assert done is not None
    return Notification(
        app_id=app_id,
        user_id=user_id,
        id=values["id"],
        event_id="e",
        type="comment",
        category=values["category"],
        priority=Priority.MEDIUM,
        title=values["title"],
        body="said something",
        content=CONTENT,
        is_shown=is_shown,
        sequence=done[1][0][0],
        created_at=values["now"],
    )


async def list_inbox(
    engine: Engine, app_id: str, user_id: str = "ana", **query: Any
) -> list[Notification]:
    """Return what all pages of an inbox list, in their order, each as it is stored."""
    pages, inboxes, asked = SqlInboxPages(engine), SqlInboxes(engine), InboxQuery(**query)
    found: list[Notification] = []
    while True:
        page = await pages.read(app_id, user_id, asked)
        for each in page.rows:
            stored = await inboxes.get(app_id, user_id, each.id)
            assert stored is not None
            found.append(stored)
        if not page.has_more:
            return found
        asked = msgspec.structs.replace(asked, after=page.rows[-1].id)
