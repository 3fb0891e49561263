"""Devices that are connected to another node than the one that accepts a message."""

import asyncio
from collections.abc import Collection

import pytest

from clarion.push.device_circuits import OPEN_MS, Ending
from clarion.push.forwarding import MESSAGE, WITHDRAWN
from clarion.push.model import MessageReason, MessageStatus
from clarion.push.session import MAILBOX_LIMIT
from clarion.push.topic_dispatch import DELETED, OFFERING_LIMIT, SUBSCRIBED
from clarion.push.topic_dispatch import MESSAGE as TOPIC_MESSAGE
from clarion.sockets.protocol import CloseCode
from tests.factories import make_broadcast, make_device
from tests.recorded_bus import RecordedBus, RecordedHub
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway, Phone


class Nodes:
    """Two nodes on one store. Messages are accepted here; the device connects there."""

    def __init__(self, stored_limit: int = 1_000) -> None:
        hub = RecordedHub()
        self.bus, self.other_bus = hub.join(), hub.join()
        self.here = Gateway(stored_limit, bus=self.bus)
        self.there = Gateway(stored_limit, bus=self.other_bus, beside=self.here)


@pytest.fixture
async def nodes() -> Nodes:
    return Nodes()


def subjects(bus: RecordedBus) -> list[str]:
    return [subject for subject, _ in bus.published]


# Messages to devices.


def fail(gateway: Gateway) -> None:
    """Let the connections of the device fail until its circuit is open."""
    ending = Ending(CloseCode.TOO_SLOW_OR_FAST, 60_000, has_unacknowledged=True)
    while not gateway.dispatch.circuits.end(gateway.device.id, ending, gateway.clock.monotonic()):
        pass


async def test_a_push_to_a_device_that_keeps_failing_is_stored_and_announced_later(
    nodes: Nodes,
) -> None:
    fail(nodes.here)
    phone = await nodes.there.connect()
    assert await nodes.here.push("a") is True
    assert (await nodes.here.stored(), nodes.bus.published, phone.ids) == (["a"], [], [])
    nodes.here.clock.advance(OPEN_MS[1])
    for device_id in nodes.here.dispatch.circuits.take_put_off(nodes.here.clock.monotonic()):
        nodes.here.dispatch.forwarding.announce_waiting(device_id)
    await settle()
    assert phone.ids == ["a"]
    assert await nodes.here.push("b") is True
    assert phone.ids == ["a", "b"]


async def test_a_push_that_is_not_stored_is_forwarded_whatever_failed(nodes: Nodes) -> None:
    fail(nodes.here)
    phone = await nodes.there.connect()
    assert await nodes.here.push("a", is_stored=False) is True
    assert phone.ids == ["a"]


async def test_a_push_reaches_the_device_where_it_is_connected(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    assert await nodes.here.push("a") is True
    assert phone.ids == ["a"]
    phone.acknowledge()
    await settle()
    assert await nodes.here.state_of("a") == (MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)


async def test_a_push_to_a_device_that_is_connected_here_is_not_forwarded(nodes: Nodes) -> None:
    phone = await nodes.here.connect()
    await nodes.here.push("a")
    assert (phone.ids, nodes.bus.published) == (["a"], [])


async def test_a_push_is_stored_before_it_is_forwarded(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    nodes.here.gates.are_open = False
    pushing = asyncio.ensure_future(nodes.here.push("a"))
    await nodes.here.gates.let_pass()
    assert (await nodes.here.stored(), nodes.bus.published, phone.ids) == (["a"], [], [])
    await nodes.here.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_a_device_that_connects_elsewhere_while_a_push_is_stored_gets_it_once(
    nodes: Nodes,
) -> None:
    nodes.here.gates.are_open = False
    pushing = asyncio.ensure_future(nodes.here.push("a"))
    await settle()
    phone = nodes.there.start_connecting()
    while nodes.here.gates.count > 1 or not phone.is_ready:
        await nodes.here.gates.let_pass(1)
    assert phone.ids == []
    await nodes.here.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_many_pushes_arrive_in_their_order_and_the_rest_is_read(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    names = [f"{n:03}" for n in range(3 * MAILBOX_LIMIT)]
    for name in names:
        await nodes.here.push(name)
    while phone.unacknowledged:
        phone.acknowledge(10)
        await settle()
    assert phone.ids == names
    assert await nodes.here.stored() == []


async def test_a_push_to_a_device_that_has_left_waits_for_it(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    nodes.there.connections.remove(phone)  # it is still held
    await nodes.here.push("a")
    assert phone.ids == []
    assert (await nodes.here.connect()).ids == ["a"]


async def test_a_push_that_is_not_stored_is_pending_if_the_device_is_elsewhere(
    nodes: Nodes,
) -> None:
    phone = await nodes.there.connect()
    await nodes.here.push("a", is_stored=False)
    assert phone.ids == ["a"]
    assert await nodes.here.state_of("a") == (MessageStatus.PENDING, None)
    phone.acknowledge()
    await settle()
    assert (await nodes.here.state_of("a"))[0] is MessageStatus.DELIVERED


async def test_a_push_that_is_not_stored_expires_if_nobody_has_the_device(nodes: Nodes) -> None:
    await nodes.here.push("a", is_stored=False)
    assert await nodes.here.state_of("a") == (MessageStatus.EXPIRED, MessageReason.NOT_STORED)
    assert nodes.bus.published == []


async def test_a_device_that_connects_while_it_is_looked_for_gets_a_push_that_is_not_stored() -> (
    None
):
    class SlowBus(RecordedBus):
        async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
            del device_ids
            phones.append(await gateway.connect())
            return frozenset()

    phones: list[Phone] = []
    gateway = Gateway(bus=SlowBus(RecordedHub()))
    await gateway.push("a", is_stored=False)
    assert phones[0].ids == ["a"]
    assert await gateway.state_of("a") == (MessageStatus.PENDING, None)


async def test_a_repeat_has_the_other_node_read_what_was_lost(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    nodes.bus.is_connected = False
    await nodes.here.push("a")
    nodes.bus.is_connected = True
    assert phone.ids == []
    assert await nodes.here.push("a") is False
    assert phone.ids == ["a"]


async def test_a_cancelled_message_is_withdrawn_on_the_other_node(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    phone.session.is_paused = True
    await nodes.here.push("a")
    assert await nodes.here.dispatch.cancel(nodes.here.device, "a") is True
    await settle()
    phone.carry_out(phone.session.resume(nodes.here.clock.now()))
    assert (phone.ids, subjects(nodes.bus)) == ([], [MESSAGE, WITHDRAWN])
    assert await nodes.here.state_of("a") == (MessageStatus.EXPIRED, MessageReason.CANCELLED)


async def test_the_newest_connection_wins_on_all_nodes(nodes: Nodes) -> None:
    older = await nodes.here.connect()
    nodes.here.clock.advance(1)
    newer = await nodes.there.connect()
    assert older.close is not None
    assert older.close.code is CloseCode.REPLACED
    nodes.here.dispatch.disconnect(older)
    await nodes.here.push("a")
    assert (older.ids, newer.ids) == ([], ["a"])


async def test_a_device_that_disconnects_is_released(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    assert await nodes.bus.find_held([nodes.here.device.id])
    nodes.there.dispatch.disconnect(phone)
    assert not await nodes.bus.find_held([nodes.here.device.id])


async def test_a_connection_that_was_replaced_on_its_node_does_not_release(nodes: Nodes) -> None:
    older = await nodes.there.connect()
    await nodes.there.connect()
    nodes.there.dispatch.disconnect(older)
    assert await nodes.bus.find_held([nodes.here.device.id])


async def test_a_device_elsewhere_that_takes_all_does_not_make_every_push_count() -> None:
    nodes = Nodes(stored_limit=16)
    phone = await nodes.there.connect()
    for number in range(120):
        if number == 60:
            before = nodes.here.store.reads + nodes.here.store.writes
        await nodes.here.push(f"{number}")
        phone.acknowledge()
        await settle()
    after = nodes.here.store.reads + nodes.here.store.writes
    assert len(phone.ids) == 120
    assert after - before <= 60 * 2 + 12  # stored and acknowledged; now and then counted


@pytest.mark.parametrize("subject", [MESSAGE, WITHDRAWN, TOPIC_MESSAGE, SUBSCRIBED, DELETED])
async def test_what_a_node_with_another_version_sends_is_reported(
    nodes: Nodes, subject: str
) -> None:
    reported: list[bool] = []
    nodes.there.dispatch.forwarding.on_unreadable = lambda: reported.append(True)
    nodes.bus.publish(subject, b"\xc1")
    await settle()
    assert reported == [True]


# Messages to topics.


async def test_a_topic_message_reaches_subscribers_on_every_node(nodes: Nodes) -> None:
    other = make_device()
    await nodes.here.subscribe()
    await nodes.here.dispatch.topics.subscribe(other, "news")
    here, there = await nodes.here.connect(other), await nodes.there.connect()
    message = await nodes.here.publish()
    assert (here.ids, there.ids) == ([message.id], [message.id])
    there.acknowledge()
    await settle()
    assert await nodes.here.cursor() == 1


async def test_a_node_without_subscribers_offers_nothing(nodes: Nodes) -> None:
    await nodes.there.connect()
    await nodes.here.publish()
    assert nodes.there.dispatch.topics._offering == {}


async def test_a_topic_message_that_was_not_received_is_read_when_the_next_one_is(
    nodes: Nodes,
) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    nodes.bus.is_connected = False
    first = await nodes.here.publish()
    nodes.bus.is_connected = True
    second = await nodes.here.publish()
    assert phone.ids == [first.id, second.id]


async def test_topic_messages_that_arrive_in_another_order_are_sent_once(nodes: Nodes) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    nodes.bus.is_connected = False
    messages = [await nodes.here.publish() for _ in range(2)]
    nodes.bus.is_connected = True
    for subject, data in reversed(nodes.bus.published[-2:]):
        nodes.other_bus.take(subject, data)
    await settle()
    assert phone.ids == [message.id for message in messages]


async def test_a_topic_message_that_is_not_stored_is_sent(nodes: Nodes) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    message = await nodes.here.publish(is_stored=False)
    assert phone.ids == [message.id]


async def test_a_node_that_cannot_keep_up_holds_few_messages_and_reads_the_rest(
    nodes: Nodes,
) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    topics = nodes.there.dispatch.topics
    made = []
    for _ in range(3 * OFFERING_LIMIT):
        message = make_broadcast("news", created_at=nodes.here.clock.now())
        sequence = await nodes.here.broadcasts.publish(message, -1)  # type: ignore[arg-type]
        assert isinstance(sequence, int)
        made.append(message._replace(sequence=sequence))
    for message in made:  # in one turn of the loop
        topics._take_message(message)
    assert len(topics._offering["app", "news"]) <= OFFERING_LIMIT + 1
    await settle()
    while phone.unacknowledged:
        phone.acknowledge(10)
        await settle()
    assert phone.ids == [message.id for message in made]


async def test_a_subscription_on_another_node_is_effective_at_once(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    assert await nodes.here.subscribe() is True
    await settle()
    message = await nodes.there.publish()
    assert phone.ids == [message.id]


async def test_a_subscription_that_is_repeated_elsewhere_sends_nothing_again(
    nodes: Nodes,
) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    message = await nodes.here.publish()
    await nodes.here.subscribe()
    await settle()
    assert phone.ids == [message.id]


async def test_a_device_unsubscribed_on_another_node_gets_nothing(nodes: Nodes) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    assert await nodes.here.unsubscribe() is True
    await settle()
    await nodes.there.publish()
    assert phone.ids == []


async def test_a_topic_that_is_deleted_loses_its_subscribers_on_every_node(nodes: Nodes) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    nodes.here.dispatch.topics.remove_subscribers("app", "news")
    await settle()
    assert not phone.topics
