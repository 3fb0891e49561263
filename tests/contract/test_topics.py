"""The contract of `Topics`."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.push.model import StoragePolicy, Topic
from clarion.push.sql.topics import MARK_DELETED, Broadcasts, Topics
from clarion.store.engine import Engine
from clarion.store.statement import Unit
from tests.factories import NOW, make_broadcast, make_topic, new_app_id
from tests.replacing import replace


async def all_topics(
    topics: Topics, app_id: str = "app", *, broadcast_channels: bool = False
) -> list[Topic]:
    page = await topics.list(app_id, broadcast_channels=broadcast_channels, after=None, limit=100)
    assert page.next is None
    return list(page.items)


@pytest.mark.parametrize("storage_policy", StoragePolicy)
@pytest.mark.parametrize("is_broadcast_channel", [True, False])
async def test_a_topic_comes_back_as_made(
    topics: Topics, storage_policy: StoragePolicy, *, is_broadcast_channel: bool
) -> None:
    topic = make_topic(
        "ünïcode", storage_policy=storage_policy, is_broadcast_channel=is_broadcast_channel
    )
    assert await topics.create(topic) is True
    assert await topics.get("app", "ünïcode") == topic


async def test_an_unknown_topic_is_none(topics: Topics) -> None:
    assert await topics.get("app", "nothing") is None


async def test_a_taken_name_is_not_made_again(topics: Topics) -> None:
    first = make_topic()
    await topics.create(first)
    assert (
        await topics.create(
            make_topic(storage_policy=StoragePolicy.NONE, is_broadcast_channel=True)
        )
        is False
    )
    assert await topics.get("app", "news") == first


async def test_the_name_of_a_deleted_topic_stays_taken(topics: Topics) -> None:
    await topics.create(make_topic())
    await topics.delete("app", "news", NOW)
    assert await topics.create(make_topic()) is False
    assert await topics.get("app", "news") is None


async def test_apps_do_not_share_topics(topics: Topics) -> None:
    mine, theirs = make_topic(), make_topic(app_id="other")
    assert await topics.create(mine)
    assert await topics.create(theirs)
    assert await topics.delete("other", "news", NOW)
    assert await topics.get("app", "news") == mine
    assert await all_topics(topics) == [mine]
    assert await all_topics(topics, "other") == []


async def test_of_one_name_at_two_nodes_at_once_one_topic_is_made(
    topics: Topics, other_node: Engine
) -> None:
    nodes = (topics, Topics(other_node))
    made = [make_topic(created_at=n) for n in range(20)]
    outcomes = await asyncio.gather(*(nodes[i % 2].create(each) for i, each in enumerate(made)))
    assert outcomes.count(True) == 1
    assert await topics.get("app", "news") == made[outcomes.index(True)]


async def test_deleting_takes_messages_and_subscriptions_along(
    topics: Topics, broadcasts: Broadcasts
) -> None:
    for topic in ("news", "other"):
        await broadcasts.subscribe("app", "device", topic, NOW)
        await broadcasts.publish(make_broadcast(topic), StoragePolicy.ALL)
    assert await topics.delete("app", "news", NOW) is True
    assert await broadcasts.missed("app", "news", cursor=0, now=NOW, limit=9) == ()
    assert len(await broadcasts.missed("app", "other", cursor=0, now=NOW, limit=9)) == 1
    assert [each.topic for each in await broadcasts.subscriptions("device")] == ["other"]


async def test_a_large_topic_is_deleted_in_small_commits(
    topics: Topics, broadcasts: Broadcasts, engine: Engine
) -> None:
    """In one, a million subscriptions would keep every other write waiting for seconds."""
    await asyncio.gather(
        *(broadcasts.subscribe("app", f"device-{n:04}", "news", NOW) for n in range(1_200)),
        *(broadcasts.publish(make_broadcast("news"), StoragePolicy.ALL) for _ in range(3)),
    )
    before = engine.commit.batches
    assert await topics.delete("app", "news", NOW)
    assert engine.commit.batches - before >= 4
    assert await broadcasts.subscriptions("device-0000") == ()
    assert await broadcasts.subscriptions("device-1199") == ()
    assert await broadcasts.missed("app", "news", cursor=0, now=NOW, limit=9) == ()


async def test_what_a_deletion_left_is_deleted_before_the_topic_is_pruned(
    topics: Topics, broadcasts: Broadcasts, engine: Engine
) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    mark = MARK_DELETED.guard(app_id="app", topic="news", now=NOW)
    await engine.write(Unit("news", (mark,)))
    assert len(await broadcasts.subscriptions("device")) == 1
    assert await topics.prune_deleted(NOW + 1, 10) == 1
    assert await broadcasts.subscriptions("device") == ()


async def test_deleting_again_does_not_empty_a_topic_that_is_not_deleted(
    topics: Topics, broadcasts: Broadcasts
) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    deleted, subscribed = await asyncio.gather(
        topics.delete("app", "other", NOW), broadcasts.subscribe("app", "device", "other", NOW)
    )
    assert (deleted, subscribed) == (False, 0)
    assert len(await broadcasts.subscriptions("device")) == 2


async def test_what_is_not_there_cannot_be_deleted(topics: Topics) -> None:
    await topics.create(make_topic())
    assert await topics.delete("app", "nothing", NOW) is False
    assert await topics.delete("app", "news", NOW) is True
    assert await topics.delete("app", "news", NOW) is False


async def test_topics_and_channels_are_listed_apart(topics: Topics) -> None:
    plain, channel = make_topic("a"), make_topic("b", is_broadcast_channel=True)
    await topics.create(plain)
    await topics.create(channel)
    assert await all_topics(topics) == [plain]
    assert await all_topics(topics, broadcast_channels=True) == [channel]


async def test_deleted_topics_are_not_listed(topics: Topics) -> None:
    await topics.create(make_topic())
    await topics.delete("app", "news", NOW)
    assert await all_topics(topics) == []


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.sets(st.text("abcXYZ019._~=-", min_size=1, max_size=3), max_size=8),
    limit=st.integers(1, 9),
)
async def test_pages_hold_every_topic_once_in_order_while_more_are_added(
    topics: Topics, names: set[str], limit: int
) -> None:
    app_id, seen, after = new_app_id(), list[Topic](), None
    made = [make_topic(name, app_id=app_id) for name in sorted(names)]
    for number, topic in enumerate(reversed(made)):
        await topics.create(topic)
        await topics.create(make_topic(f"c{number}", app_id=app_id, is_broadcast_channel=True))
    while True:
        page = await topics.list(app_id, broadcast_channels=False, after=after, limit=limit)
        assert len(page.items) <= limit
        seen += page.items
        after = page.next
        if after is None:
            break
        if len(made) < len(names) + 3:
            made.append(make_topic("~" * (10 + len(made)), app_id=app_id))
            await topics.create(made[-1])
    assert seen == made


async def test_topics_deleted_before_a_time_are_pruned(topics: Topics) -> None:
    for number, app_id in enumerate(("app", "other", "app")):
        await topics.create(make_topic(f"{number}", app_id=app_id))
        await topics.delete(app_id, f"{number}", NOW + number)
    kept = make_topic("kept")
    await topics.create(kept)
    assert await topics.prune_deleted(NOW + 2, 10) == 2
    assert await topics.prune_deleted(NOW + 2, 10) == 0
    assert await topics.create(make_topic("0")) is True
    assert await topics.create(make_topic("1", app_id="other")) is True
    assert await topics.create(make_topic("2")) is False
    assert await topics.get("app", "kept") == kept


async def test_pruning_topics_takes_the_first_deleted_up_to_a_limit(topics: Topics) -> None:
    for number in range(5):
        await topics.create(make_topic(f"{number}"))
        await topics.delete("app", f"{number}", NOW + 5 - number)
    assert await topics.prune_deleted(NOW + 9, 3) == 3
    created = [await topics.create(make_topic(f"{number}")) for number in range(5)]
    assert created == [False, False, True, True, True]


async def test_a_topic_with_the_name_of_a_pruned_one_starts_anew(
    topics: Topics, broadcasts: Broadcasts
) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    for _ in range(3):
        await broadcasts.publish(make_broadcast("news"), StoragePolicy.ALL)
    await broadcasts.advance("device", "news", 3)
    await topics.delete("app", "news", NOW)
    assert await topics.prune_deleted(NOW + 1, 10) == 1
    assert await broadcasts.subscriptions("device") == ()
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 0
    message = make_broadcast("news")
    assert await broadcasts.publish(message, StoragePolicy.ALL) == 1
    (missed,) = await broadcasts.missed("app", "news", cursor=0, now=NOW, limit=9)
    assert missed.id == message.id


async def test_a_topic_is_put_opened_and_closed(topics: Topics) -> None:
    topic = make_topic("news")
    assert await topics.put(topic) == (topic, True)
    for is_open in (True, False):
        changed = replace(topic, is_open=is_open)
        assert await topics.put(replace(changed, created_at=NOW + 1)) == (changed, False)
        assert await topics.get("app", "news") == changed


async def test_opening_a_topic_leaves_its_subscriptions_and_its_numbers(
    topics: Topics, broadcasts: Broadcasts
) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    await broadcasts.publish(make_broadcast("news"), StoragePolicy.ALL)
    put = await topics.put(make_topic("news", is_open=True, created_at=NOW + 1))
    assert put is not None
    assert (put[0].is_open, put[1]) == (True, False)
    assert [each.topic for each in await broadcasts.subscriptions("device")] == ["news"]
    assert await broadcasts.publish(make_broadcast("news"), StoragePolicy.ALL) == 2


async def test_neither_a_deleted_topic_nor_a_broadcast_channel_is_put(
    topics: Topics,
) -> None:
    channel = make_topic("channel", is_broadcast_channel=True, is_open=True)
    await topics.create(channel)
    assert await topics.put(make_topic("channel")) is None
    assert await topics.get("app", "channel") == channel
    await topics.create(make_topic("news"))
    await topics.delete("app", "news", NOW)
    assert await topics.put(make_topic("news")) is None
    assert await topics.put(make_topic("news", app_id="other")) is not None
