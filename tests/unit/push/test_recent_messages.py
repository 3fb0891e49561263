"""What other nodes stored a moment ago is found by a few reads, however many devices there are."""

import asyncio

import pytest

from clarion.push.recent_messages import OVERLAP_MS, RecentMessages
from tests.factories import make_device
from tests.recorded_bus import RecordedHub
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway


class Nodes:
    """Two nodes on one store that cannot reach each other; devices are connected there."""

    def __init__(self) -> None:
        hub = RecordedHub()
        self.bus, self.other_bus = hub.join(), hub.join()
        self.here = Gateway(bus=self.bus)
        self.there = Gateway(bus=self.other_bus, beside=self.here)
        self.clock = self.there.clock
        self.recent = RecentMessages(self.there.dispatch, self.other_bus, self.clock, every_s=0)
        self.bus.is_connected = self.other_bus.is_connected = False

    async def look(self) -> int:
        """Look once, and return how many reads it took."""
        before = self.here.store.reads
        await self.recent.look_if_disconnected()
        reads = self.here.store.reads - before
        await settle()
        return reads


@pytest.fixture
async def nodes() -> Nodes:
    return Nodes()


async def test_a_message_of_another_node_is_found_by_one_read_for_all_devices(
    nodes: Nodes,
) -> None:
    phone = await nodes.there.connect()
    for _ in range(20):
        await nodes.there.connect(make_device())
    assert await nodes.look() == 1
    await nodes.here.push("a")
    assert phone.ids == []
    assert await nodes.look() == 1
    assert phone.ids == ["a"]


async def test_what_is_not_acknowledged_is_not_read_again_and_again(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    await nodes.here.push("a")
    await nodes.look()
    before = nodes.here.store.reads
    await nodes.look()
    assert nodes.here.store.reads - before == 1  # the look itself
    assert phone.ids == ["a"]


async def test_a_topic_message_of_another_node_is_found(nodes: Nodes) -> None:
    await nodes.here.subscribe()
    phone = await nodes.there.connect()
    assert await nodes.look() == 2
    message = await nodes.here.publish()
    assert phone.ids == []
    await nodes.look()
    assert phone.ids == [message.id]
    before = nodes.here.store.reads
    await nodes.look()
    assert nodes.here.store.reads - before == 2


async def test_what_was_stored_while_a_silent_bus_was_not_noticed_is_found(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    nodes.other_bus.is_connected = True
    await nodes.look()
    await nodes.here.push("a")  # the bus hangs, and nobody knows
    nodes.clock.advance(OVERLAP_MS - 1)
    assert await nodes.look() == 0
    assert phone.ids == []
    nodes.other_bus.is_connected = False
    await nodes.look()
    assert phone.ids == ["a"]


async def test_a_look_that_fails_is_made_up_for(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    await nodes.here.push("a")
    nodes.here.gates.failures = [True]
    await nodes.look()
    assert phone.ids == []
    nodes.clock.advance(10 * OVERLAP_MS)
    await nodes.look()
    assert phone.ids == ["a"]


async def test_a_device_that_connects_at_that_moment_misses_nothing(nodes: Nodes) -> None:
    nodes.here.gates.are_open = False
    connecting = asyncio.ensure_future(nodes.there.connect())
    await settle()
    while len(nodes.there.connections) == 0:
        await nodes.here.gates.let_pass()
    await nodes.here.gates.let_pass()
    nodes.here.gates.are_open = True
    await nodes.here.push("a")
    await nodes.recent.look_if_disconnected()
    await nodes.here.gates.let_all_pass()
    phone = await connecting
    await settle()
    assert phone.ids == ["a"]


async def test_many_messages_are_read_in_pages(nodes: Nodes) -> None:
    nodes.recent = RecentMessages(
        nodes.there.dispatch, nodes.other_bus, nodes.clock, read_at_once=2
    )
    phone = await nodes.there.connect()
    for number in range(5):
        push = nodes.here.make_push()
        await nodes.here.dispatch.accept(make_device(id=f"d{number}"), push, f"{number}")
    await nodes.here.push("last")
    assert await nodes.look() > 2
    assert phone.ids == ["last"]


async def test_the_loop_looks_while_the_bus_is_disconnected(nodes: Nodes) -> None:
    phone = await nodes.there.connect()
    running = asyncio.create_task(nodes.recent.run())
    await nodes.here.push("a")
    async with asyncio.timeout(30):
        while phone.ids != ["a"]:
            await settle()
    running.cancel()
