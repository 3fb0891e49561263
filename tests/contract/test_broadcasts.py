"""The contract of `Broadcasts`."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.errors import Conflict, IdempotencyKeyReused
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.push.model import Message, PushPriority, StoragePolicy, TopicSubscription
from clarion.push.sql.topics import Broadcasts, Topics
from clarion.store.engine import Engine
from tests.factories import DAY, NOW, make_broadcast, make_once, make_topic, new_app_id


async def published(
    broadcasts: Broadcasts, *several: Message, storage_policy: StoragePolicy = StoragePolicy.ALL
) -> list[Message]:
    """Publish one after the other and return them with their sequences."""
    numbered = []
    for message in several:
        sequence = await broadcasts.publish(message, storage_policy)
        assert isinstance(sequence, int)
        numbered.append(message._replace(sequence=sequence))
    return numbered


async def missed(
    broadcasts: Broadcasts, topic: str = "news", *, cursor: int = 0, app_id: str = "app"
) -> list[Message]:
    return list(await broadcasts.missed(app_id, topic, cursor=cursor, now=NOW, limit=10_000))


async def cursor_of(broadcasts: Broadcasts, device_id: str = "device") -> int:
    (subscription,) = await broadcasts.subscriptions(device_id)
    return subscription.cursor


async def test_the_subscriptions_of_several_devices_are_found_in_one_read(
    broadcasts: Broadcasts, topics: Topics
) -> None:
    for device_id, topic in (("d1", "a"), ("d1", "b"), ("d2", "a"), ("d3", "a"), ("d2", "gone")):
        await broadcasts.subscribe("app", device_id, topic, NOW)
    await published(broadcasts, make_broadcast("a"), make_broadcast("a"))
    await broadcasts.advance("d2", "a", 1)
    await topics.delete("app", "gone", NOW)
    assert await broadcasts.find_subscriptions("app", ["d1", "d2", "none"]) == {
        "d1": {"a": (0, 2), "b": (0, 0)},
        "d2": {"a": (1, 2)},
    }
    assert await broadcasts.find_subscriptions("other", ["d1"]) == {}


async def test_the_last_sequences_of_topics_are_found_in_one_read(
    broadcasts: Broadcasts, topics: Topics
) -> None:
    app_id = new_app_id()
    for topic in ("a", "b", "gone"):
        await broadcasts.subscribe(app_id, "device", topic, NOW)
    await published(broadcasts, *(make_broadcast("a", app_id=app_id) for _ in range(2)))
    await topics.delete(app_id, "gone", NOW)
    asked = ["a", "b", "gone", "none"]
    assert await broadcasts.find_last_sequences(app_id, asked) == {"a": 2, "b": 0}
    assert await broadcasts.find_last_sequences(new_app_id(), asked) == {}


@pytest.mark.parametrize("priority", PushPriority)
async def test_a_message_comes_back_as_published(
    broadcasts: Broadcasts, priority: PushPriority
) -> None:
    message = make_broadcast(priority=priority, collapse_id="ä", payload=b'{"\x00\xff":1}')
    assert await broadcasts.publish(message, StoragePolicy.ALL) == 1
    assert await missed(broadcasts) == [message._replace(sequence=1)]


async def test_sequences_grow_by_one_from_one(broadcasts: Broadcasts) -> None:
    made = await published(broadcasts, *(make_broadcast() for _ in range(5)))
    assert [message.sequence for message in made] == [1, 2, 3, 4, 5]


async def test_each_topic_of_each_app_has_its_own_sequence(broadcasts: Broadcasts) -> None:
    await published(broadcasts, make_broadcast(), make_broadcast())
    others = await published(broadcasts, make_broadcast("b"), make_broadcast(app_id="other"))
    assert [message.sequence for message in others] == [1, 1]
    assert await missed(broadcasts, app_id="other") == others[1:]


async def test_publishing_makes_the_topic(broadcasts: Broadcasts, topics: Topics) -> None:
    await published(broadcasts, make_broadcast())
    assert await topics.get("app", "news") == make_topic()


async def test_a_deleted_topic_takes_nothing(broadcasts: Broadcasts, topics: Topics) -> None:
    await topics.create(make_topic())
    await topics.delete("app", "news", NOW)
    for storage_policy in StoragePolicy:
        assert await broadcasts.publish(make_broadcast(), storage_policy) is None
    assert await broadcasts.subscribe("app", "device", "news", NOW) is None
    assert await missed(broadcasts) == []
    assert await broadcasts.subscriptions("device") == ()


async def test_the_same_id_is_published_once_a_topic(broadcasts: Broadcasts) -> None:
    made = await published(broadcasts, make_broadcast(id="same"))
    assert (
        await broadcasts.publish(make_broadcast(id="same", payload=b"{}"), StoragePolicy.ALL)
        is None
    )
    assert await missed(broadcasts) == made
    assert await broadcasts.publish(make_broadcast("other", id="same"), StoragePolicy.ALL) == 1
    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL) == 2


async def test_of_one_id_many_times_at_once_one_is_published(broadcasts: Broadcasts) -> None:
    many = [make_broadcast(id="same") for _ in range(20)]
    sequences = await asyncio.gather(
        *(broadcasts.publish(each, StoragePolicy.ALL) for each in many)
    )
    assert [sequence for sequence in sequences if sequence is not None] == [1]
    assert len(await missed(broadcasts)) == 1


async def test_of_a_topic_that_keeps_nothing_only_the_sequence_stays(
    broadcasts: Broadcasts,
) -> None:
    made = await published(
        broadcasts, make_broadcast(), make_broadcast(), storage_policy=StoragePolicy.NONE
    )
    assert [message.sequence for message in made] == [1, 2]
    assert await missed(broadcasts) == []


async def test_of_a_topic_that_keeps_the_last_the_ones_before_are_dropped(
    broadcasts: Broadcasts,
) -> None:
    made = [make_broadcast(collapse_id=c) for c in (None, "c", "c", "d")]
    *_, last = await published(broadcasts, *made, storage_policy=StoragePolicy.LAST)
    assert last.sequence == 4
    assert await missed(broadcasts) == [last]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=st.lists(
        st.tuples(st.sampled_from(StoragePolicy), st.sampled_from([None, "c"]), st.booleans()),
        max_size=12,
    )
)
async def test_whatever_is_published_at_once_is_numbered_without_a_gap(
    broadcasts: Broadcasts, plan: list[tuple[StoragePolicy, str | None, bool]]
) -> None:
    topic = new_app_id()
    made = [make_broadcast(topic, collapse_id=collapse_id) for _, collapse_id, _ in plan]

    async def publish(number: int) -> Message:
        storage_policy, _, is_once = plan[number]
        once = make_once("app", key=made[number].id) if is_once else None
        sequence = await broadcasts.publish(made[number], storage_policy, once)
        assert isinstance(sequence, int)
        return made[number]._replace(sequence=sequence)

    numbered = await asyncio.gather(*map(publish, range(len(plan))))
    assert sorted(each.sequence for each in numbered) == list(range(1, len(plan) + 1))
    kept = await missed(broadcasts, topic)
    assert kept == sorted(kept, key=lambda message: message.sequence)
    assert all(message in numbered for message in kept)
    assert len([message for message in kept if message.collapse_id]) <= 1


async def test_many_messages_at_once_are_numbered_in_the_order_in_which_they_came(
    broadcasts: Broadcasts,
) -> None:
    many = [make_broadcast() for _ in range(200)]
    sequences = await asyncio.gather(
        *(broadcasts.publish(each, StoragePolicy.ALL) for each in many)
    )
    assert sequences == list(range(1, 201))


async def test_two_nodes_number_a_topic_without_a_gap_each_in_its_order(
    broadcasts: Broadcasts, other_node: Engine
) -> None:
    async def publish_all(node: Broadcasts) -> list[object]:
        rounds = [
            await asyncio.gather(
                *(node.publish(make_broadcast(), StoragePolicy.ALL) for _ in range(10))
            )
            for _ in range(10)
        ]
        return [sequence for each in rounds for sequence in each]

    nodes = (broadcasts, Broadcasts(other_node))
    here, there = await asyncio.gather(*map(publish_all, nodes))
    assert sorted([*here, *there]) == list(range(1, 201))  # type: ignore[type-var]
    assert here == sorted(here)  # type: ignore[type-var]
    assert there == sorted(there)  # type: ignore[type-var]


async def test_a_reader_never_sees_a_hole_while_two_nodes_publish(
    broadcasts: Broadcasts, other_node: Engine
) -> None:
    nodes = (broadcasts, Broadcasts(other_node))
    count, seen = 150, list[int]()

    async def publish_all(node: Broadcasts) -> None:
        for _ in range(count):
            await node.publish(make_broadcast(), StoragePolicy.ALL)

    writing = [asyncio.create_task(publish_all(node)) for node in nodes]
    while len(seen) < 2 * count:
        await asyncio.sleep(0)
        found = await missed(broadcasts, cursor=len(seen))
        seen += [message.sequence for message in found]
        assert seen == list(range(1, len(seen) + 1))
    await asyncio.gather(*writing)


async def test_nodes_that_publish_to_many_topics_do_not_stand_in_each_other_s_way(
    broadcasts: Broadcasts, other_node: Engine
) -> None:
    nodes, names = (broadcasts, Broadcasts(other_node)), [f"{n}" for n in range(10)]
    many = [
        node.publish(
            make_broadcast(topic), StoragePolicy.ALL, make_once("app", key=f"{n}-{topic}-{i}")
        )
        for i in range(5)
        for n, node in enumerate(nodes)
        for topic in (names if n else reversed(names))
    ]
    sequences = await asyncio.gather(*many)
    assert sorted(sequences) == sorted(list(range(1, 11)) * 10)  # type: ignore[type-var]


async def test_a_repeat_gets_the_first_answer_and_is_not_published(
    broadcasts: Broadcasts,
) -> None:
    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, make_once("app")) == 1
    again = make_once("app", answer=b"another", now=NOW + 1)
    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, again) == StoredResponse(
        b"the answer"
    )
    assert len(await missed(broadcasts)) == 1
    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL) == 2


async def test_the_same_idempotency_key_for_another_request_is_refused(
    broadcasts: Broadcasts,
) -> None:
    await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, make_once("app"))
    other = make_once("app", fingerprint=b"other")
    with pytest.raises(IdempotencyKeyReused):
        await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, other)
    assert len(await missed(broadcasts)) == 1


async def test_a_deleted_topic_leaves_the_idempotency_key_unused(
    broadcasts: Broadcasts, topics: Topics
) -> None:
    await topics.create(make_topic())
    await topics.delete("app", "news", NOW)
    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, make_once("app")) is None
    mended = make_once("app", fingerprint=b"mended")
    assert await broadcasts.publish(make_broadcast("other"), StoragePolicy.ALL, mended) == 1


async def test_an_idempotency_key_holds_until_it_expires(broadcasts: Broadcasts) -> None:
    def once(now: int) -> IdempotencyClaim:
        return make_once("app", now=now, expires_at=now + DAY)

    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, once(NOW)) == 1
    repeat = await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, once(NOW + DAY - 1))
    assert isinstance(repeat, StoredResponse)
    assert await broadcasts.publish(make_broadcast(), StoragePolicy.ALL, once(NOW + DAY)) == 2


async def test_a_subscription_starts_after_the_last_message(broadcasts: Broadcasts) -> None:
    await published(broadcasts, make_broadcast(), make_broadcast())
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 2
    later = await published(broadcasts, make_broadcast())
    assert await missed(broadcasts, cursor=2) == later


async def test_subscribing_makes_the_topic(broadcasts: Broadcasts, topics: Topics) -> None:
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 0
    assert await topics.get("app", "news") == make_topic()


async def test_subscribing_again_changes_nothing(broadcasts: Broadcasts) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    await published(broadcasts, make_broadcast())
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 0
    assert await broadcasts.subscriptions("device") == (TopicSubscription(topic="news", cursor=0),)


async def test_a_new_subscription_starts_after_the_last_message_again(
    broadcasts: Broadcasts,
) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    await published(broadcasts, make_broadcast())
    assert await broadcasts.unsubscribe("device", "news") is True
    assert await broadcasts.unsubscribe("device", "news") is False
    assert await broadcasts.subscriptions("device") == ()
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 1


@pytest.mark.parametrize("storage_policy", StoragePolicy)
async def test_a_subscription_starts_after_the_last_message_for_every_storage_policy(
    broadcasts: Broadcasts, storage_policy: StoragePolicy
) -> None:
    await published(broadcasts, make_broadcast(), make_broadcast(), storage_policy=storage_policy)
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 2


async def test_subscriptions_are_those_of_one_device(broadcasts: Broadcasts) -> None:
    for device_id, topic in (("a", "y"), ("a", "x"), ("b", "z")):
        await broadcasts.subscribe("app", device_id, topic, NOW)
    assert [each.topic for each in await broadcasts.subscriptions("a")] == ["x", "y"]
    assert await broadcasts.unsubscribe("b", "x") is False
    assert await broadcasts.subscriptions("nobody") == ()


async def subscribe_to_many(broadcasts: Broadcasts, count: int) -> list[BaseException]:
    """Subscribe to so many topics at once; return what went wrong."""
    asked = (broadcasts.subscribe("app", "device", f"{n:04}", NOW) for n in range(count))
    done = await asyncio.gather(*asked, return_exceptions=True)
    return [each for each in done if isinstance(each, BaseException)]


async def test_a_device_has_at_most_a_thousand_subscriptions(broadcasts: Broadcasts) -> None:
    refused = await subscribe_to_many(broadcasts, 1_010)
    assert [type(each) for each in refused] == [Conflict] * 10
    assert len(await broadcasts.subscriptions("device")) == 1_000


async def test_a_device_with_a_thousand_subscriptions_may_replace_one(
    broadcasts: Broadcasts,
) -> None:
    assert await subscribe_to_many(broadcasts, 1_000) == []
    assert await broadcasts.subscribe("app", "device", "0007", NOW) == 0
    with pytest.raises(Conflict, match="subscribed to 1,000 topics"):
        await broadcasts.subscribe("app", "device", "news", NOW)
    assert await broadcasts.subscribe("app", "another", "news", NOW) == 0
    assert await broadcasts.unsubscribe("device", "0007") is True
    assert await broadcasts.subscribe("app", "device", "news", NOW) == 0


async def test_what_was_missed_comes_oldest_first_behind_the_cursor(
    broadcasts: Broadcasts,
) -> None:
    made = await published(broadcasts, *(make_broadcast() for _ in range(4)))
    assert await missed(broadcasts, cursor=1) == made[1:]
    assert await missed(broadcasts, cursor=4) == []
    assert await broadcasts.missed("app", "news", cursor=0, now=NOW, limit=2) == tuple(made[:2])


async def test_what_has_expired_is_not_missed(broadcasts: Broadcasts) -> None:
    ends = [make_broadcast(expires_at=NOW + n) for n in (0, 1)]
    made = await published(broadcasts, *ends)
    assert await missed(broadcasts) == made[1:]


async def test_of_several_with_one_collapse_id_the_newest_is_missed(
    broadcasts: Broadcasts,
) -> None:
    made = await published(
        broadcasts, *(make_broadcast(collapse_id=c) for c in ("a", "b", None, "a", None))
    )
    assert await missed(broadcasts) == [made[1], made[2], made[3], made[4]]
    (other,) = await published(broadcasts, make_broadcast("other", collapse_id="a"))
    assert await missed(broadcasts, "other") == [other]
    assert len(await missed(broadcasts)) == 4


async def test_of_many_with_one_collapse_id_at_two_nodes_the_newest_is_missed(
    broadcasts: Broadcasts, other_node: Engine
) -> None:
    nodes = (broadcasts, Broadcasts(other_node))
    many = [make_broadcast(collapse_id="c") for _ in range(40)]
    publishing = (nodes[i % 2].publish(each, StoragePolicy.ALL) for i, each in enumerate(many))
    await asyncio.gather(*publishing)
    assert [message.sequence for message in await missed(broadcasts)] == [40]


async def test_a_cursor_moves_forward_alone(broadcasts: Broadcasts) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    for cursor, expected in ((3, 3), (2, 3), (3, 3), (7, 7)):
        await broadcasts.advance("device", "news", cursor)
        assert await cursor_of(broadcasts) == expected


async def test_the_highest_of_many_cursors_at_once_stays(broadcasts: Broadcasts) -> None:
    await broadcasts.subscribe("app", "device", "news", NOW)
    moves = (broadcasts.advance("device", "news", cursor) for cursor in (3, 9, 1, 7))
    await asyncio.gather(*moves)
    assert await cursor_of(broadcasts) == 9


async def test_many_cursors_move_together(broadcasts: Broadcasts) -> None:
    for device_id in ("device", "other"):
        for topic in ("news", "sport"):
            await broadcasts.subscribe("app", device_id, topic, NOW)
    await broadcasts.advance("other", "news", 8)
    await broadcasts.advance_many(
        [("other", "news", 5), ("device", "sport", 2), ("device", "news", 3), ("gone", "news", 1)]
    )
    found = {(each, topic): 0 for each in ("device", "other") for topic in ("news", "sport")}
    for device_id in ("device", "other"):
        for subscription in await broadcasts.subscriptions(device_id):
            found[device_id, subscription.topic] = subscription.cursor
    assert list(found.values()) == [3, 2, 8, 0]


async def test_a_cursor_is_moved_for_one_device_and_topic(broadcasts: Broadcasts) -> None:
    for device_id in ("device", "other"):
        await broadcasts.subscribe("app", device_id, "news", NOW)
    await broadcasts.advance("device", "news", 5)
    await broadcasts.advance("device", "unknown", 5)
    assert await cursor_of(broadcasts) == 5
    assert await cursor_of(broadcasts, "other") == 0


async def test_messages_whose_time_has_passed_are_deleted(broadcasts: Broadcasts) -> None:
    ends = [make_broadcast(f"{n}", expires_at=NOW + n) for n in range(5)]
    await published(broadcasts, *ends)
    assert [await broadcasts.expire(NOW + 3, limit=3) for _ in range(3)] == [3, 1, 0]
    left = [len(await missed(broadcasts, f"{n}")) for n in range(5)]
    assert left == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("storage_policy", StoragePolicy)
async def test_a_sequence_is_not_used_again_when_its_message_is_gone(
    broadcasts: Broadcasts, storage_policy: StoragePolicy
) -> None:
    await published(broadcasts, make_broadcast(expires_at=NOW), storage_policy=storage_policy)
    await broadcasts.expire(NOW, limit=9)
    assert await broadcasts.publish(make_broadcast(), storage_policy) == 2


async def test_deleting_while_others_publish_leaves_nothing_behind(
    broadcasts: Broadcasts, topics: Topics, other_node: Engine
) -> None:
    elsewhere = Broadcasts(other_node)
    for n in range(5):
        topic = f"{n}"
        await topics.create(make_topic(topic))
        await asyncio.gather(
            broadcasts.subscribe("app", "a", topic, NOW),
            topics.delete("app", topic, NOW),
            broadcasts.publish(make_broadcast(topic), StoragePolicy.ALL),
            elsewhere.publish(make_broadcast(topic), StoragePolicy.ALL),
            elsewhere.subscribe("app", "b", topic, NOW),
        )
        assert await missed(broadcasts, topic) == []
    assert await broadcasts.subscriptions("a") == await broadcasts.subscriptions("b") == ()
