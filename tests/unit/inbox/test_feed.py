"""What a screen is told: every change once, and the truth about the count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import StoreUnavailable
from clarion.inbox.feed import CHUNK, MISSED_LIMIT, Feed
from clarion.inbox.items import Kind, Update
from tests.factories import NOW
from tests.unit.inbox.memory import MemoryInboxes


@pytest.fixture
def inboxes() -> MemoryInboxes:
    return MemoryInboxes()


@pytest.fixture
def feed(inboxes: MemoryInboxes) -> Feed:
    return Feed(inboxes, "app", "ana")


def story(updates: list[Update]) -> list[tuple[Kind, int, int]]:
    return [(update.type, update.sequence, update.unread_count) for update in updates]


async def test_it_begins_behind_the_last_change(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.add()
    assert await feed.begin(None) == Update(Kind.STATE, 1, 1)
    assert await feed.more() == ([], True)


async def test_it_begins_behind_a_number_and_tells_what_came_since(
    inboxes: MemoryInboxes, feed: Feed
) -> None:
    for changes in ({}, {"read_at": NOW}, {"dismissed_at": NOW}, {}):
        inboxes.add(**changes)
    assert await feed.begin(1) == Update(Kind.STATE, 2, 1)
    updates, is_all = await feed.more()
    assert is_all
    assert story(updates) == [
        (Kind.READ, 2, 2),
        (Kind.DISMISSED, 3, 2),
        (Kind.NOTIFICATION, 4, 2),
    ]
    assert await feed.more() == ([], True)


async def test_much_comes_in_chunks(inboxes: MemoryInboxes, feed: Feed) -> None:
    for _ in range(CHUNK + 3):
        inboxes.add()
    await feed.begin(0)
    first, is_all = await feed.more()
    assert (len(first), is_all) == (CHUNK, False)
    rest, is_all = await feed.more()
    assert (len(rest), is_all) == (3, True)


@pytest.mark.parametrize(("behind", "is_told"), [(MISSED_LIMIT, True), (MISSED_LIMIT + 1, False)])
async def test_too_much_is_not_told(
    inboxes: MemoryInboxes, feed: Feed, behind: int, *, is_told: bool
) -> None:
    inboxes.add()
    inboxes.skipped = behind - 1
    await feed.begin(0)
    updates, is_all = await feed.more()
    assert is_all
    told = (Kind.NOTIFICATION, 1, 1)
    assert story(updates) == [told if is_told else (Kind.RESYNC, behind, 1)]
    assert await feed.more() == ([], True)


async def test_a_number_from_another_life_begins_anew(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.add()
    await feed.begin(2)
    assert story((await feed.more())[0]) == [(Kind.RESYNC, 1, 1)]
    inboxes.add()
    assert story((await feed.more())[0]) == [(Kind.NOTIFICATION, 2, 2)]


async def test_a_count_without_a_change_is_told(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.add()
    inboxes.add()
    await feed.begin(None)
    del inboxes.items[0]  # it was kept long enough
    assert story((await feed.more())[0]) == [(Kind.COUNT, 2, 1)]
    assert await feed.more() == ([], True)


async def test_what_comes_between_two_reads_is_told_next(
    inboxes: MemoryInboxes, feed: Feed
) -> None:
    await feed.begin(None)
    inboxes.add()
    inboxes.between = inboxes.add
    assert story((await feed.more())[0]) == [(Kind.NOTIFICATION, 1, 2)]
    inboxes.between = lambda: None
    assert story((await feed.more())[0]) == [(Kind.NOTIFICATION, 2, 2)]


async def test_a_store_that_does_not_answer_is_said(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.is_broken = True
    with pytest.raises(StoreUnavailable):
        await feed.begin(None)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 6))
async def test_whenever_it_is_read_nothing_is_told_twice_or_never(
    bursts: list[int], after: int
) -> None:
    inboxes = MemoryInboxes()
    for _ in range(6):
        inboxes.add()
    feed = Feed(inboxes, "app", "ana")
    await feed.begin(after)
    told: list[int] = []
    for burst in bursts:
        for _ in range(burst):
            inboxes.add()
        updates, _ = await feed.more()
        told += [update.sequence for update in updates]
    told += [update.sequence for update in (await feed.more())[0]]
    assert told == list(range(after + 1, inboxes.sequence + 1))
