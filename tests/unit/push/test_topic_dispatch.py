"""Messages to topics: sent at once to connected subscribers, later to others, to none twice."""

import asyncio
import json
from itertools import pairwise

import pytest

from clarion.push.connections import TopicCursor
from clarion.push.model import PushPriority, StoragePolicy
from clarion.push.session import MAILBOX_LIMIT, DeviceSession, Effect
from clarion.push.sql.topics import Topics
from clarion.push.topic_dispatch import CHUNK, DEFERRED_LIMIT, OFFERING_LIMIT
from clarion.sockets.protocol import SendFrame
from tests.factories import make_broadcast, make_device
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway

HIGH, MIDDLE, LOW = PushPriority


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def test_a_broadcast_is_sent_to_subscribers(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone, other = await gateway.connect(), await gateway.connect(make_device())
    message = await gateway.publish()
    assert (phone.ids, other.ids) == ([message.id], [])
    assert phone.got[0]["topic"] == "news"


async def test_an_offline_subscriber_gets_a_broadcast_later(gateway: Gateway) -> None:
    await gateway.subscribe()
    missed = [await gateway.publish() for _ in range(3)]
    phone = await gateway.connect()
    assert phone.ids == [message.id for message in missed]
    phone.acknowledge()
    await settle()
    assert await gateway.cursor() == 3


async def test_a_device_that_subscribes_while_connected_gets_later_messages(
    gateway: Gateway,
) -> None:
    await gateway.publish()
    phone = await gateway.connect()
    assert await gateway.subscribe() is True
    await settle()
    later = await gateway.publish()
    assert phone.ids == [later.id]


async def test_an_unsubscribed_device_gets_nothing(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    assert await gateway.unsubscribe() is True
    assert await gateway.unsubscribe() is False
    await gateway.publish()
    assert phone.ids == []


async def test_a_device_may_name_its_own_cursor(gateway: Gateway) -> None:
    await gateway.subscribe()
    messages = [await gateway.publish() for _ in range(3)]
    phone = await gateway.connect(known={"news": 2, "other": 9})
    assert phone.ids == [messages[2].id]


async def test_a_cursor_does_not_pass_what_is_not_acknowledged(gateway: Gateway) -> None:
    await gateway.subscribe()
    first = await gateway.connect()
    messages = [await gateway.publish() for _ in range(3)]
    first.unacknowledged = first.unacknowledged[1:]
    first.acknowledge()
    await settle()
    assert await gateway.cursor() == 0
    gateway.dispatch.disconnect(first)
    assert (await gateway.connect()).ids == [message.id for message in messages]


async def test_a_broadcast_acknowledged_just_before_disconnecting_is_not_sent_again(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    first = await gateway.connect()
    await gateway.publish()
    first.acknowledge()
    gateway.dispatch.disconnect(first)
    await settle()
    assert await gateway.cursor() == 1
    assert (await gateway.connect()).ids == []


async def test_a_broadcast_that_is_replaced_before_it_goes_out_holds_no_cursor(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    phone.session.is_paused = True
    for _ in range(3):
        last = await gateway.publish(collapse_id="c")
    phone.carry_out(phone.session.resume(gateway.clock.now()))
    phone.acknowledge()
    await settle()
    assert phone.ids == [last.id]
    assert await gateway.cursor() == 3


async def test_a_broadcast_that_expires_before_it_goes_out_holds_no_cursor(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    phone.session.is_paused = True
    await gateway.publish(expires_at=gateway.clock.now() + 5)
    gateway.clock.advance(5)
    phone.carry_out(phone.session.resume(gateway.clock.now()))
    await settle()
    assert (phone.ids, await gateway.cursor()) == ([], 1)


async def test_a_broadcast_that_is_not_stored_is_sent_to_connected_devices(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    once = await gateway.publish(is_stored=False)
    kept = await gateway.publish()
    assert phone.ids == [once.id, kept.id]
    phone.acknowledge()
    await settle()
    assert await gateway.cursor() == 2
    gateway.dispatch.disconnect(phone)
    await gateway.publish(is_stored=False)
    assert (await gateway.connect()).ids == []


async def test_a_broadcast_that_is_not_stored_makes_nobody_read_the_store(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    reads = gateway.store.reads
    sent = [await gateway.publish(is_stored=each) for each in (False, False, True, False, True)]
    await settle()
    assert phone.ids == [message.id for message in sent]
    assert gateway.store.reads == reads


async def test_a_broadcast_that_is_not_stored_hides_no_gap_before_it(gateway: Gateway) -> None:
    """One that another node has published is read with the next one that is stored."""
    await gateway.subscribe()
    phone = await gateway.connect()
    missed = make_broadcast()
    await gateway.broadcasts.publish(missed, StoragePolicy.ALL)
    once, kept = await gateway.publish(is_stored=False), await gateway.publish()
    await settle()
    assert sorted(phone.ids) == sorted([missed.id, once.id, kept.id])


@pytest.mark.parametrize("priority", [MIDDLE, LOW])
async def test_a_broadcast_that_can_wait_does_not_wake_a_device_in_the_background(
    gateway: Gateway, priority: PushPriority
) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    phone.say(type="state", foreground=False)
    later = await gateway.publish(priority=priority)
    urgent = await gateway.publish()
    assert phone.ids == [urgent.id]
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.ids == [urgent.id, later.id]


async def test_what_another_node_published_before_comes_first(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    elsewhere = make_broadcast()
    await gateway.broadcasts.publish(elsewhere, StoragePolicy.ALL)
    here = await gateway.publish()
    assert phone.ids == [elsewhere.id, here.id]


async def test_a_deleted_topic_has_no_subscribers(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    for _ in range(3):
        await gateway.publish()
    phone.acknowledge()
    await settle()
    topics = Topics(gateway.store.open)
    await topics.delete("app", "news", gateway.clock.now())
    gateway.dispatch.topics.remove_subscribers("app", "news")
    # A topic of the same name that is created later has sequences of its own.
    assert await topics.prune_deleted(gateway.clock.now() + 1, 1) == 1
    await gateway.publish()
    assert await gateway.subscribe() is True
    last = await gateway.publish()
    assert phone.ids[3:] == [last.id]


async def test_what_is_deferred_when_it_is_read_comes_in_the_window(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    low = make_broadcast(priority=LOW)
    await gateway.broadcasts.publish(low, StoragePolicy.ALL)
    here = await gateway.publish()
    assert phone.ids == [here.id]
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.ids == [here.id, low.id]


async def test_what_was_deferred_comes_again_to_a_device_that_left_before_its_window(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    first = await gateway.connect()
    low, urgent = await gateway.publish(priority=LOW), await gateway.publish()
    assert first.ids == [urgent.id]
    first.acknowledge()
    await settle()
    assert await gateway.cursor() == 0
    gateway.dispatch.disconnect(first)
    assert sorted((await gateway.connect()).ids) == sorted([low.id, urgent.id])


async def test_what_expired_while_it_was_deferred_is_not_asked_for_again(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    await gateway.publish(priority=LOW, expires_at=gateway.clock.now() + 5)
    gateway.clock.advance(5)
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.topics
    assert phone.topics["news"].deferred == {}
    assert not gateway.dispatch.tasks._tasks


async def test_a_broadcast_while_its_topic_is_read_is_not_missed(gateway: Gateway) -> None:
    await gateway.subscribe()
    missed = await gateway.publish()
    gateway.gates.are_open = False
    phone = gateway.start_connecting()
    while not (phone.is_ready and phone.topics and not phone.topics["news"].is_behind):
        await gateway.gates.let_pass()
    await gateway.gates.let_pass()  # the topic was read, and is not returned yet
    publishing = asyncio.ensure_future(gateway.publish())
    for _ in range(2):
        await gateway.gates.let_pass(1)
    await gateway.gates.let_all_pass()
    assert phone.ids == [missed.id, (await publishing).id]


async def test_what_is_deferred_while_its_topic_is_read_is_not_forgotten(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    await gateway.publish(priority=LOW)
    gateway.gates.are_open = False
    phone.carry_out(phone.session.open_window())
    for _ in range(3):
        await gateway.gates.let_pass()  # the topic was read, and is not returned yet
    publishing = asyncio.ensure_future(gateway.publish(priority=LOW))
    for _ in range(2):
        await gateway.gates.let_pass(1)
    await gateway.gates.let_all_pass()
    assert phone.ids[1:] == [(await publishing).id]


async def test_no_more_than_a_limit_is_deferred(gateway: Gateway) -> None:
    await gateway.subscribe()
    phone = await gateway.connect()
    for _ in range(DEFERRED_LIMIT):
        await gateway.publish(priority=LOW)
    assert phone.ids == []
    await gateway.publish(priority=LOW)
    while phone.unacknowledged:
        phone.acknowledge()
        await settle()
    assert phone.topics
    assert len(phone.ids) + len(phone.topics["news"].deferred) == DEFERRED_LIMIT + 1
    assert len(phone.ids) > 0


async def test_the_messages_of_many_topics_are_sent_in_chunks(gateway: Gateway) -> None:
    topics = [f"{n}" for n in range(40)]
    for topic in topics:
        await gateway.subscribe(topic)
        for _ in range(10):
            await gateway.publish(topic)
    phone = await gateway.connect()
    assert len(phone.session._mailbox or ()) <= MAILBOX_LIMIT + CHUNK
    while phone.unacknowledged:
        phone.acknowledge(50)
        await settle()
    assert len(phone.ids) == 400
    assert [await gateway.cursor(topic) for topic in topics] == [10] * 40


async def test_one_read_takes_no_more_than_one_chunk_of_all_topics_together(
    gateway: Gateway,
) -> None:
    for number in range(5):
        await gateway.subscribe(f"{number}")
        for _ in range(CHUNK):
            await gateway.publish(f"{number}")
    phone = await gateway.connect()
    assert len(phone.ids) == CHUNK
    while phone.unacknowledged:
        phone.acknowledge()
        await settle()
    assert len(phone.ids) == 5 * CHUNK


async def test_acknowledged_messages_of_a_topic_move_its_cursor_once(gateway: Gateway) -> None:
    topics = ("news", "sport")
    for topic in topics:
        await gateway.subscribe(topic)
        for _ in range(10):
            await gateway.publish(topic)
    phone = await gateway.connect()
    writes = gateway.store.writes
    phone.acknowledge()
    await settle()
    assert [await gateway.cursor(topic) for topic in topics] == [10, 10]
    assert gateway.store.writes == writes + 2


async def test_an_unsubscription_while_the_device_connects_is_not_forgotten(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    gateway.gates.are_open = False
    phone = gateway.start_connecting()
    await gateway.gates.let_pass()  # it has read the subscriptions, and has not returned them yet
    leaving = asyncio.ensure_future(gateway.unsubscribe())
    for _ in range(2):
        await gateway.gates.let_pass(1)
    assert await leaving is True
    await gateway.gates.let_all_pass()
    gateway.gates.are_open = True
    await gateway.publish()
    assert phone.ids == []


async def test_a_device_that_unsubscribes_and_subscribes_while_connecting_gets_later_messages(
    gateway: Gateway,
) -> None:
    await gateway.subscribe()
    await gateway.publish()
    gateway.gates.are_open = False
    phone = gateway.start_connecting()
    await gateway.gates.let_pass()  # it has read the subscriptions, and has not returned them yet
    for change in (gateway.unsubscribe, gateway.subscribe):
        changing = asyncio.ensure_future(change())
        for _ in range(2):
            await gateway.gates.let_pass(1)
        assert await changing is True
    await gateway.gates.let_all_pass()
    gateway.gates.are_open = True
    assert phone.ids == []
    later = await gateway.publish()
    assert phone.ids == [later.id]


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_topic_unsubscribed_while_connecting_can_be_subscribed_again(
    gateway: Gateway, *, is_closed: bool
) -> None:
    await gateway.subscribe()
    gateway.gates.are_open = False
    phone = gateway.start_connecting()
    await settle()
    leaving = asyncio.ensure_future(gateway.unsubscribe())
    for _ in range(2):
        await gateway.gates.let_pass(1)
    assert await leaving is True
    if is_closed:
        gateway.dispatch.disconnect(phone)
    await gateway.gates.let_all_pass()
    gateway.gates.are_open = True
    await gateway.broadcasts.subscribe(
        "app", gateway.device.id, "news", gateway.clock.now()
    )  # elsewhere
    again = await gateway.connect()
    message = await gateway.publish()
    assert again.ids == [message.id]


class Screen:
    """A `Connection` that keeps the bytes it is to send."""

    def __init__(self, gateway: Gateway) -> None:
        self.session = DeviceSession(gateway.clock.now())
        self.topics: dict[str, TopicCursor] | None = None
        self.sent: list[bytes] = []

    def carry_out(self, effects: list[Effect]) -> None:
        self.sent += [effect.data for effect in effects if isinstance(effect, SendFrame)]


def connect_many(gateway: Gateway, count: int) -> list[Screen]:
    screens = [Screen(gateway) for _ in range(count)]
    for screen in screens:
        device = make_device()
        screen.session.device = device
        screen.session.welcome(0)
        screen.session.refill([], gateway.clock.now(), is_all=True)
        screen.sent.clear()
        gateway.connections.add(device.id, screen)
        gateway.connections.subscribe("app", "news", screen, TopicCursor(0, 0, is_behind=False))
    return screens


async def test_a_broadcast_to_many_lets_other_work_run(gateway: Gateway) -> None:
    screens = connect_many(gateway, 5_000)
    publishing = asyncio.ensure_future(gateway.publish())
    reached = [0]
    while reached[-1] < len(screens):
        await asyncio.sleep(0)
        reached.append(sum(bool(screen.sent) for screen in screens))
    await publishing
    assert max(later - earlier for earlier, later in pairwise(reached)) < len(screens) / 2


async def test_subscribers_are_sent_the_same_bytes_in_the_order_of_the_messages(
    gateway: Gateway,
) -> None:
    first, *others = connect_many(gateway, 100)
    messages = await asyncio.gather(*(gateway.publish() for _ in range(3)))
    await settle()
    assert [json.loads(data)["id"] for data in first.sent] == [each.id for each in messages]
    for other in others:
        assert all(one is same for one, same in zip(first.sent, other.sent, strict=True))


async def test_beyond_a_limit_of_messages_in_hand_the_next_one_waits(gateway: Gateway) -> None:
    connect_many(gateway, 1)
    waiting = [
        asyncio.ensure_future(gateway.dispatch.topics.publish(make_broadcast(), StoragePolicy.ALL))
        for _ in range(OFFERING_LIMIT + 5)
    ]
    assert await asyncio.gather(*waiting) == [True] * len(waiting)
    await settle()
    assert not gateway.dispatch.topics._offering
