"""The `InboxPages` port: what the API shows is what the inbox has, and outlines tell changes."""

from typing import Any

import msgspec
import pytest

from clarion.catalog.model import Category
from clarion.errors import InvalidFields
from clarion.history.model import Notification
from clarion.inbox.model import InboxAction, InboxQuery, InboxRows, InboxState
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.inbox.sql.numbers import COUNT_CHANGE
from clarion.inbox.sql.pages import SqlInboxPages
from clarion.inbox.views import InboxItem, to_item, to_page
from clarion.store.engine import Engine
from clarion.store.statement import Unit
from tests.factories import NOW, new_app_id
from tests.inbox import put

QUERIES = [
    InboxQuery(unread=unread, category=category, limit=limit)
    for unread in (False, True)
    for category in (None, "social", "news")
    for limit in (2, 100)
]


class Store:
    """The inbox of one user, and of another in the same app."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.app_id = new_app_id()
        self.inboxes = SqlInboxes(engine)
        self.pages = SqlInboxPages(engine)

    async def put(self, count: int = 1, **more: Any) -> list[str]:
        return [(await put(self.engine, self.app_id, **more)).id for _ in range(count)]

    async def apply(self, action: InboxAction, notification_id: str) -> None:
        done = await self.inboxes.apply(action, self.app_id, "ana", notification_id, NOW + 61_001)
        assert done is not None

    async def find(self, ids: list[str]) -> list[Notification]:
        """Return notifications by their ids, newest first."""
        found = [await self.inboxes.get(self.app_id, "ana", each) for each in reversed(ids)]
        return [each for each in found if each is not None]

    async def read(self, query: InboxQuery = QUERIES[0]) -> InboxRows:
        return await self.pages.read(self.app_id, "ana", query)


@pytest.fixture
async def store(engine: Engine) -> Store:
    return Store(engine)


@pytest.mark.parametrize("query", QUERIES, ids=str)
async def test_a_page_is_that_of_the_inbox(store: Store, query: InboxQuery) -> None:
    ids = await store.put(3, category=Category.SOCIAL)
    ids += await store.put(4, category=Category.NEWS, title=None)
    await store.put(user_id="bo")
    await store.put(is_shown=False)
    await store.apply(InboxAction.READ, ids[1])
    await store.apply(InboxAction.READ, ids[4])
    await store.apply(InboxAction.DISMISS, ids[5])
    state = await store.inboxes.state(store.app_id, "ana")
    expected = [each for each in await store.find(ids) if is_listed(each, query)]
    found: list[InboxItem] = []
    while True:
        rows = await store.read(query)
        page = to_page(rows)
        assert len(page.items) == min(query.limit, len(expected) - len(found))
        found += page.items
        assert (page.unread_count, page.sequence) == (state.unread_count, state.sequence)
        assert await store.pages.outline(store.app_id, "ana", query) == rows.outline
        if page.next is None:
            break
        query = msgspec.structs.replace(query, after=page.next)
    shown = msgspec.to_builtins([to_item(each) for each in expected])
    assert msgspec.json.decode(msgspec.json.encode(found)) == shown


def is_listed(notification: Notification, query: InboxQuery) -> bool:
    return (
        notification.dismissed_at is None
        and not (query.unread and notification.read_at)
        and query.category in (None, notification.category)
    )


async def test_an_empty_page_has_the_state_of_the_inbox(store: Store) -> None:
    assert await store.read() == InboxRows([], has_more=False, state=InboxState(0, 0))
    (only,) = await store.put()
    await store.apply(InboxAction.DISMISS, only)
    assert await store.read() == InboxRows([], has_more=False, state=InboxState(0, 2))
    await store.put(category=Category.NEWS)
    empty = await store.pages.outline(store.app_id, "ana", InboxQuery(category="social"))
    assert empty == ([], False, InboxState(1, 3))


async def test_a_cursor_must_be_one_of_ours(store: Store) -> None:
    query = InboxQuery(after="x")
    for read in (store.pages.read, store.pages.outline):
        with pytest.raises(InvalidFields):
            await read(store.app_id, "ana", query)


async def test_whatever_changes_a_page_changes_its_outline(store: Store) -> None:
    seen = [(await store.read()).outline]

    async def note() -> None:
        seen.append(await store.pages.outline(store.app_id, "ana", QUERIES[0]))

    ids = await store.put(3)
    await note()
    for action in (InboxAction.READ, InboxAction.UNREAD, InboxAction.DISMISS):
        await store.apply(action, ids[0])
        await note()
    await store.apply(InboxAction.READ, ids[1])
    await note()
    # Retention deletes without a number, and counts only what is unread.
    await store.inboxes.forget(store.app_id, "ana", [ids[1]])
    await note()
    await store.inboxes.forget(store.app_id, "ana", [ids[2]])
    await note()
    # A text that was redacted keeps its number.
    step = COUNT_CHANGE.step(app_id=store.app_id, user_id="ana")
    await store.engine.write(Unit("ana", (step,)))
    await note()
    assert len({msgspec.json.encode(each) for each in seen}) == len(seen)
    # The next change is numbered after it.
    await store.put()
    assert (await store.read()).rows[0].sequence == seen[-1].state.sequence + 1


async def test_one_that_is_clicked_shows_nothing_new(store: Store) -> None:
    (only,) = await store.put()
    before = (await store.read()).outline
    await store.apply(InboxAction.CLICK, only)
    assert (await store.read()).outline == before
