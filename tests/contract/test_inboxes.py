"""The `Inboxes` port: what users see, exact counts, and numbers without gaps."""

import asyncio

import pytest

from clarion.catalog.model import Category
from clarion.errors import InvalidFields
from clarion.inbox.model import InboxAction, InboxState, InboxUpdate
from clarion.inbox.port import Inboxes
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.inbox.sql.numbers import LOCK
from clarion.inbox.sql.showing import update
from clarion.store.engine import Engine
from clarion.store.statement import Unit
from tests.factories import NOW, new_app_id
from tests.inbox import list_inbox, put
from tests.replacing import replace

LATER = NOW + 5
READ, UNREAD, DISMISS, CLICK = InboxAction


@pytest.fixture
def inboxes(engine: Engine) -> Inboxes:
    return SqlInboxes(engine)


@pytest.fixture
def app_id() -> str:
    return new_app_id()


async def test_an_unknown_user_has_an_empty_inbox(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    assert await inboxes.state(app_id, "ana") == InboxState(0, 0)
    assert await list_inbox(engine, app_id) == []
    assert await inboxes.changes(app_id, "ana", 0, 9) == ()
    assert await inboxes.states(app_id, ["ana"]) == {}
    assert await inboxes.read_all(app_id, "ana", NOW) == InboxState(0, 0)


async def test_the_list_is_newest_first_and_whole(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    made = [await put(engine, app_id) for _ in range(5)]
    assert await list_inbox(engine, app_id, limit=2) == made[::-1]
    assert await inboxes.state(app_id, "ana") == InboxState(5, 5)
    assert await inboxes.get(app_id, "ana", made[2].id) == made[2]


async def test_the_list_can_be_narrowed(engine: Engine, inboxes: Inboxes, app_id: str) -> None:
    news = await put(engine, app_id, category=Category.NEWS)
    social = await put(engine, app_id)
    read = await put(engine, app_id)
    await inboxes.apply(READ, app_id, "ana", read.id, LATER)
    assert await list_inbox(engine, app_id, unread=True) == [social, news]
    assert await list_inbox(engine, app_id, category=Category.NEWS) == [news]
    assert await list_inbox(engine, app_id, unread=True, category=Category.SOCIAL) == [social]


@pytest.mark.parametrize("cursor", ["", "x", "0190F000-0000-7000-C000-000000000001", "'" * 36])
async def test_a_cursor_of_no_page_is_refused(engine: Engine, app_id: str, cursor: str) -> None:
    with pytest.raises(InvalidFields, match="after"):
        await list_inbox(engine, app_id, after=cursor)


async def test_what_is_not_shown_is_as_if_it_were_not_there(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    hidden = await put(engine, app_id, is_shown=False)
    assert await list_inbox(engine, app_id) == []
    assert await inboxes.get(app_id, "ana", hidden.id) is None
    assert await inboxes.apply(READ, app_id, "ana", hidden.id, NOW) is None
    assert await inboxes.apply(DISMISS, app_id, "ana", hidden.id, NOW) is None
    assert await inboxes.changes(app_id, "ana", -1, 9) == ()
    assert (await inboxes.state(app_id, "ana")).unread_count == 0


async def test_reading_counts_once(engine: Engine, inboxes: Inboxes, app_id: str) -> None:
    made = await put(engine, app_id)
    expected = replace(made, read_at=LATER, sequence=2)
    assert await inboxes.apply(READ, app_id, "ana", made.id, LATER) == expected
    assert await inboxes.apply(READ, app_id, "ana", made.id, LATER + 1) == expected
    assert await inboxes.state(app_id, "ana") == InboxState(0, 2)


async def test_unread_again_counts_once(engine: Engine, inboxes: Inboxes, app_id: str) -> None:
    made = await put(engine, app_id)
    assert await inboxes.apply(UNREAD, app_id, "ana", made.id, LATER) == made
    await inboxes.apply(READ, app_id, "ana", made.id, LATER)
    for _ in range(2):
        assert await inboxes.apply(UNREAD, app_id, "ana", made.id, LATER) == replace(
            made, sequence=3
        )
    assert await inboxes.state(app_id, "ana") == InboxState(1, 3)


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_dismissed_one_is_gone_and_counts_no_more(
    engine: Engine, inboxes: Inboxes, app_id: str, *, is_read: bool
) -> None:
    made, other = await put(engine, app_id), await put(engine, app_id)
    if is_read:
        await inboxes.apply(READ, app_id, "ana", made.id, NOW)
    for now in (LATER, LATER + 1):
        gone = await inboxes.apply(DISMISS, app_id, "ana", made.id, now)
        assert gone is not None
        assert gone.dismissed_at == LATER
    assert await list_inbox(engine, app_id) == [other]
    assert await inboxes.state(app_id, "ana") == InboxState(1, 4 if is_read else 3)


async def test_a_dismissed_one_stays_as_it_is(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    made = await put(engine, app_id)
    gone = await inboxes.apply(DISMISS, app_id, "ana", made.id, LATER)
    assert await inboxes.apply(READ, app_id, "ana", made.id, LATER) == gone
    assert await inboxes.apply(UNREAD, app_id, "ana", made.id, LATER) == gone
    assert await inboxes.get(app_id, "ana", made.id) == gone
    assert await inboxes.state(app_id, "ana") == InboxState(0, 2)


async def test_a_click_changes_nothing_that_others_see(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    made = await put(engine, app_id)
    for later in range(3):
        assert await inboxes.apply(CLICK, app_id, "ana", made.id, NOW + later) == made
    assert await inboxes.state(app_id, "ana") == InboxState(1, 1)
    assert await inboxes.apply(CLICK, app_id, "ana", "nothing", NOW) is None


async def test_others_cannot_change_it(engine: Engine, inboxes: Inboxes, app_id: str) -> None:
    made = await put(engine, app_id)
    await put(engine, app_id, "bo")
    for owner in ((app_id, "bo"), ("another-app", "ana")):
        for action in InboxAction:
            assert await inboxes.apply(action, *owner, made.id, NOW) is None
        assert await inboxes.get(*owner, made.id) is None
    assert await inboxes.get(app_id, "ana", made.id) == made
    assert (await inboxes.read_all("another-app", "ana", NOW)) == InboxState(0, 0)
    assert await inboxes.states(app_id, ["ana", "bo", "cy"]) == {
        "ana": InboxState(1, 1),
        "bo": InboxState(1, 1),
    }


async def test_changes_are_in_the_order_of_their_numbers(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    first, second, third = [await put(engine, app_id) for _ in range(3)]
    await inboxes.apply(READ, app_id, "ana", first.id, LATER)
    await inboxes.apply(DISMISS, app_id, "ana", second.id, LATER)
    changes = await inboxes.changes(app_id, "ana", 0, 9)
    assert [(each.id, each.sequence) for each in changes] == [
        (third.id, 3),
        (first.id, 4),
        (second.id, 5),
    ]
    assert await inboxes.changes(app_id, "ana", 3, 1) == changes[1:2]
    assert await inboxes.changes(app_id, "ana", 5, 9) == ()


async def test_reading_all_goes_in_chunks_and_each_has_its_number(
    engine: Engine, app_id: str
) -> None:
    inboxes = SqlInboxes(engine, read_all_chunk=3)
    made = [await put(engine, app_id) for _ in range(8)]
    await inboxes.apply(DISMISS, app_id, "ana", made[7].id, NOW)
    await inboxes.apply(READ, app_id, "ana", made[0].id, NOW)
    assert await inboxes.read_all(app_id, "ana", LATER) == InboxState(0, 16)
    changes = await inboxes.changes(app_id, "ana", 10, 9)
    assert [each.id for each in changes] == [each.id for each in made[1:7]]
    assert [each.sequence for each in changes] == list(range(11, 17))
    assert {each.read_at for each in changes} == {LATER}
    assert await inboxes.read_all(app_id, "ana", LATER) == InboxState(0, 16)


async def test_many_at_once_from_two_nodes_count_exactly(
    engine: Engine, other_node: Engine, app_id: str
) -> None:
    nodes = [SqlInboxes(engine), SqlInboxes(other_node)]
    made = [await put(engine, app_id) for _ in range(12)]
    actions = [
        node.apply(action, app_id, "ana", each.id, NOW + n)
        for n, each in enumerate(made)
        for node in nodes
        for action in (READ, UNREAD, DISMISS if n % 3 == 0 else READ)
    ]
    puts = [put(each, app_id) for each in (engine, other_node) for _ in range(6)]
    alls = [node.read_all(app_id, "ana", NOW) for node in nodes]
    await asyncio.gather(*actions[::2], *puts, *alls, *actions[1::2])
    state = await nodes[0].state(app_id, "ana")
    assert state.unread_count == len(await list_inbox(other_node, app_id, unread=True))
    changes = await nodes[0].changes(app_id, "ana", 0, 100)
    assert len(changes) == 24
    assert len({each.sequence for each in changes}) == 24
    assert changes[-1].sequence == state.sequence


async def test_a_user_who_clicks_twice_does_not_fail_the_batch(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    made = await put(engine, app_id)
    await asyncio.gather(*(inboxes.apply(READ, app_id, "ana", made.id, NOW) for _ in range(20)))
    assert await inboxes.state(app_id, "ana") == InboxState(0, 2)
    assert not inboxes._locks  # type: ignore[attr-defined]


async def test_what_one_batch_shows_and_forgets_is_not_counted(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    """A digest is shown as late as its notification becomes too old to be kept."""
    hidden = await put(engine, app_id, is_shown=False)
    change = InboxUpdate(
        id=hidden.id,
        title=None,
        body="2 news",
        content=hidden.content,
        count=2,
        expected_count=1,
        is_new=True,
    )
    # Each step of the one comes before the same step of the other.
    steps = (LOCK.step(app_id=app_id, user_id="ana"), *update(app_id, "ana", change))
    before = engine.commit.batches
    shown, _ = await asyncio.gather(
        engine.write(Unit("ana", steps)), inboxes.forget(app_id, "ana", [hidden.id])
    )
    assert shown is not None
    assert engine.commit.batches == before + 1
    assert await inboxes.state(app_id, "ana") == InboxState(0, 1)
    assert await list_inbox(engine, app_id) == []


async def test_a_caller_that_goes_away_does_not_count_beside_the_next_one(
    engine: Engine, inboxes: Inboxes, app_id: str
) -> None:
    """Both wait for the same commit, and the one that is cancelled holds no lock any more."""
    for turns in range(8):
        for _ in range(2):
            await put(engine, app_id)
        other = asyncio.create_task(put(engine, new_app_id()))
        await asyncio.sleep(0)
        gone = asyncio.create_task(inboxes.read_all(app_id, "ana", LATER))
        for _ in range(turns):
            await asyncio.sleep(0)
        gone.cancel()
        assert (await inboxes.read_all(app_id, "ana", LATER)).unread_count == 0
        await asyncio.gather(gone, other, return_exceptions=True)
    assert (await inboxes.state(app_id, "ana")).unread_count == 0
