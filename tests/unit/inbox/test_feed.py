"""What a live client receives: every change once, and the exact count."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import InvalidFields, StoreUnavailable
from clarion.inbox.feed import (
    CHUNK,
    MISSED_LIMIT,
    Feed,
    Update,
    UpdateType,
    encode,
    read_sequence,
    to_update,
)
from tests.factories import NOW
from tests.unit.inbox.memory import MemoryInboxes, make_notification


@pytest.fixture
def inboxes() -> MemoryInboxes:
    return MemoryInboxes()


@pytest.fixture
def feed(inboxes: MemoryInboxes) -> Feed:
    return Feed(inboxes, "app", "ana")


def summary(updates: list[Update]) -> list[tuple[UpdateType, int, int]]:
    return [(update.type, update.sequence, update.unread_count) for update in updates]


async def test_it_begins_after_the_last_change(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.add()
    assert await feed.begin(None) == Update(UpdateType.STATE, 1, 1)
    assert await feed.more() == ([], True)


async def test_it_begins_after_a_number_and_returns_the_changes_since(
    inboxes: MemoryInboxes, feed: Feed
) -> None:
    for changes in ({}, {"read_at": NOW}, {"dismissed_at": NOW}, {}):
        inboxes.add(**changes)
    assert await feed.begin(1) == Update(UpdateType.STATE, 2, 1)
    updates, is_all = await feed.more()
    assert is_all
    assert summary(updates) == [
        (UpdateType.READ, 2, 2),
        (UpdateType.DISMISSED, 3, 2),
        (UpdateType.NOTIFICATION, 4, 2),
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


@pytest.mark.parametrize(("missed", "is_sent"), [(MISSED_LIMIT, True), (MISSED_LIMIT + 1, False)])
async def test_a_client_that_missed_too_much_loads_the_list_again(
    inboxes: MemoryInboxes, feed: Feed, missed: int, *, is_sent: bool
) -> None:
    inboxes.add()
    inboxes.skipped = missed - 1
    await feed.begin(0)
    updates, is_all = await feed.more()
    assert is_all
    change = (UpdateType.NOTIFICATION, 1, 1)
    assert summary(updates) == [change if is_sent else (UpdateType.RESYNC, missed, 1)]
    assert await feed.more() == ([], True)


async def test_an_unknown_number_begins_anew(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.add()
    await feed.begin(2)
    assert summary((await feed.more())[0]) == [(UpdateType.RESYNC, 1, 1)]
    inboxes.add()
    assert summary((await feed.more())[0]) == [(UpdateType.NOTIFICATION, 2, 2)]


async def test_a_count_without_a_change_is_sent(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.add()
    inboxes.add()
    await feed.begin(None)
    del inboxes.items[0]  # it was kept long enough
    assert summary((await feed.more())[0]) == [(UpdateType.COUNT, 2, 1)]
    assert await feed.more() == ([], True)


async def test_what_comes_between_two_reads_is_sent_next(
    inboxes: MemoryInboxes, feed: Feed
) -> None:
    await feed.begin(None)
    inboxes.add()
    inboxes.between = inboxes.add
    assert summary((await feed.more())[0]) == [(UpdateType.NOTIFICATION, 1, 2)]
    inboxes.between = lambda: None
    assert summary((await feed.more())[0]) == [(UpdateType.NOTIFICATION, 2, 2)]


async def test_a_change_between_two_reads_is_not_sent_as_a_count_alone(
    inboxes: MemoryInboxes, feed: Feed
) -> None:
    await feed.begin(None)

    def add_once() -> None:
        inboxes.between = lambda: None
        inboxes.add()

    inboxes.between = add_once
    assert summary((await feed.more())[0]) == [(UpdateType.NOTIFICATION, 1, 1)]


async def test_an_error_of_the_store_is_raised(inboxes: MemoryInboxes, feed: Feed) -> None:
    inboxes.is_broken = True
    with pytest.raises(StoreUnavailable):
        await feed.begin(None)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 6))
async def test_whenever_it_is_read_everything_is_sent_once(bursts: list[int], after: int) -> None:
    inboxes = MemoryInboxes()
    for _ in range(6):
        inboxes.add()
    feed = Feed(inboxes, "app", "ana")
    await feed.begin(after)
    sent: list[int] = []
    for burst in bursts:
        for _ in range(burst):
            inboxes.add()
        updates, _ = await feed.more()
        sent += [update.sequence for update in updates]
    sent += [update.sequence for update in (await feed.more())[0]]
    assert sent == list(range(after + 1, inboxes.sequence + 1))


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


def test_a_sequence_is_a_number() -> None:
    assert read_sequence("0", "after") == 0
    assert read_sequence("9223372036854775807", "after") == (1 << 63) - 1


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "x", "٣", "9223372036854775808", "1" * 99])
def test_anything_else_is_refused_with_the_name_of_the_field(text: str) -> None:
    with pytest.raises(InvalidFields, match="after"):
        read_sequence(text, "after")
