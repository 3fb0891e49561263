"""What other nodes stored while they could not announce it is read without a reconnect."""

import asyncio

import pytest

from clarion.push.catch_up import DEVICES_AT_ONCE, TOPICS_AT_ONCE, CatchUp, _cut
from clarion.push.connections import TopicCursor
from clarion.push.session import DeviceSession
from tests.factories import NOW, make_device
from tests.recorded_bus import RecordedHub
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway, Phone


class Nodes:
    """Two nodes on one store that cannot reach each other; the device is connected there."""

    def __init__(self) -> None:
        hub = RecordedHub()
        self.bus, self.other_bus = hub.join(), hub.join()
        self.here = Gateway(bus=self.bus)
        self.there = Gateway(bus=self.other_bus, beside=self.here)
        self.bus.is_connected = self.other_bus.is_connected = False
        self.catch_up = CatchUp(
            self.there.dispatch, self.there.connections, self.other_bus, every_s=0, pause_s=0
        )

    async def read(self) -> None:
        await self.catch_up.catch_up()
        await settle()


@pytest.fixture
async def nodes() -> Nodes:
    return Nodes()


async def test_messages_are_read_that_another_node_has_stored(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    await nodes.here.push("a")
    assert phone.ids == []
    await nodes.read()
    assert phone.ids == ["a"]
    phone.acknowledge()
    await settle()
    assert await nodes.here.stored() == []


async def test_nothing_is_read_for_devices_for_which_nothing_waits(nodes: Nodes) -> None:
    for _ in range(3):
        await nodes.there.connect(make_device())
    before = nodes.here.store.reads
    await nodes.read()
    assert nodes.here.store.reads - before == 2  # what waits, and the subscriptions


async def test_topic_messages_are_read_that_another_node_has_published(nodes: Nodes) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    message = await nodes.here.publish()
    assert phone.ids == []
    await nodes.read()
    assert phone.ids == [message.id]
    await nodes.read()
    assert phone.ids == [message.id]


async def test_subscriptions_are_read_that_another_node_has_changed(nodes: Nodes) -> None:
    await nodes.here.subscribe("old")
    phone = await nodes.there.connect()
    await nodes.here.subscribe("new")
    await nodes.here.unsubscribe("old")
    message = await nodes.here.publish("new")
    await nodes.read()
    assert phone.ids == [message.id]
    assert set(phone.topics or ()) == {"new"}


@pytest.mark.parametrize("change", ["subscribe", "unsubscribe"])
async def test_a_subscription_that_changes_here_meanwhile_stays_changed(
    nodes: Nodes, change: str
) -> None:
    await nodes.there.subscribe("a")
    phone = await nodes.there.connect()
    nodes.here.gates.are_open = False
    reading = asyncio.ensure_future(nodes.catch_up.catch_up())
    await settle()
    while not nodes.there.dispatch.topics._unsubscribed:
        await nodes.here.gates.let_pass()
    await nodes.here.gates.let_pass()  # the subscriptions are read, and not returned
    nodes.here.gates.are_open = True
    if change == "subscribe":
        await nodes.there.subscribe("b")
    else:
        await nodes.there.unsubscribe("a")
    await nodes.here.gates.let_all_pass()
    await reading
    assert set(phone.topics or ()) == ({"a", "b"} if change == "subscribe" else set())


async def test_a_connection_that_closes_meanwhile_is_not_subscribed(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    await nodes.here.subscribe("a")
    nodes.here.gates.are_open = False
    reading = asyncio.ensure_future(nodes.catch_up.catch_up())
    await settle()
    nodes.there.dispatch.disconnect(phone)
    await nodes.here.gates.let_all_pass()
    await reading
    assert not phone.topics
    assert not nodes.there.connections.has_subscribers("app", "a")


async def test_the_loop_reads_while_the_bus_is_disconnected_and_once_after_a_gap(
    nodes: Nodes,
) -> None:
    phone = await nodes.there.connect()
    running = asyncio.create_task(nodes.catch_up.run())
    await nodes.here.push("a")
    async with asyncio.timeout(30):
        while phone.ids != ["a"]:
            await settle()
    nodes.other_bus.is_connected = True
    await settle()
    await nodes.here.push("b")
    await settle()
    assert phone.ids == ["a"]
    nodes.other_bus.miss()
    async with asyncio.timeout(30):
        while phone.ids != ["a", "b"]:
            await settle()
    running.cancel()


async def test_what_cannot_be_understood_has_all_read(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    await nodes.here.push("a")
    nodes.bus.is_connected = nodes.other_bus.is_connected = True
    running = asyncio.create_task(nodes.catch_up.run())
    nodes.bus.publish("push.message", b"of a later version")
    async with asyncio.timeout(30):
        while phone.ids != ["a"]:
            await settle()
    running.cancel()


async def test_a_store_that_does_not_answer_is_asked_again(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    await nodes.here.push("a")
    nodes.here.gates.failures = [True]
    running = asyncio.create_task(nodes.catch_up.run())
    async with asyncio.timeout(30):
        while phone.ids != ["a"]:
            await settle()
    running.cancel()


def make_phone(app_id: str, topics: int = 0) -> Phone:
    phone = Phone.__new__(Phone)
    phone.session = DeviceSession(NOW)
    phone.session.device = make_device(app_id)
    phone.topics = {f"{number}": TopicCursor(0, 0) for number in range(topics)} or None
    return phone


def test_a_read_is_for_some_devices_of_one_app() -> None:
    phones = [make_phone(f"app-{number % 2}") for number in range(2 * DEVICES_AT_ONCE + 2)]
    chunks = _cut(phones)
    assert sorted(len(chunk) for _, chunk in chunks) == [1, 1, DEVICES_AT_ONCE, DEVICES_AT_ONCE]
    for app_id, chunk in chunks:
        assert {each.session.device.app_id for each in chunk if each.session.device} == {app_id}
    assert {id(each) for _, chunk in chunks for each in chunk} == {id(each) for each in phones}


def test_devices_with_many_topics_are_read_a_few_at_a_time() -> None:
    phones = [make_phone("app", TOPICS_AT_ONCE // 2) for _ in range(6)]
    assert [len(chunk) for _, chunk in _cut(phones)] == [2, 2, 2]
