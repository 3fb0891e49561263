"""The `Bus` port."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import pytest
from structlog.testing import capture_logs

from clarion.nodes.bus import Bus
from tests.contract.buses import BUSES, Nodes
from tests.contract.conftest import nothing_left

WITHIN_S = 30.0
ASK_EVERY_S = 0.005
KIB = 1_024


@pytest.fixture(params=BUSES)
async def nodes(request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    address, open_bus = BUSES[request.param]
    url = str(request.getfixturevalue(address))
    async with nothing_left(), open_bus(url) as join, AsyncExitStack() as stack:
        yield Nodes(join, stack)


class Received:
    """What a node received on subjects, call by call, and which devices it lost."""

    def __init__(self, bus: Bus, *subjects: str) -> None:
        self.calls: dict[str, list[list[bytes]]] = defaultdict(list)
        self.replaced: list[str] = []
        self.gaps = 0
        for subject in subjects:
            bus.subscribe(subject, partial(self._receive, subject))
        bus.on_replaced(self.replaced.extend)
        bus.on_gap(self._count_gap)

    def of(self, subject: str) -> list[bytes]:
        return [each for call in self.calls[subject] for each in call]

    def _receive(self, subject: str, said: Sequence[bytes]) -> None:
        self.calls[subject].append(list(said))

    def _count_gap(self) -> None:
        self.gaps += 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(ASK_EVERY_S)


async def until_held(bus: Bus, expected: set[str], *asked: str) -> None:
    """Wait until other nodes hold exactly these of the devices."""
    async with asyncio.timeout(WITHIN_S):
        while await bus.find_held(asked or expected) != expected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(ASK_EVERY_S)


async def test_a_node_that_joined_is_connected(nodes: Nodes) -> None:
    assert (await nodes.join()).is_connected


async def test_what_is_published_reaches_all_other_nodes(nodes: Nodes) -> None:
    publisher, *others = [await nodes.join() for _ in range(3)]
    own, *received = [Received(each, "key.ended") for each in (publisher, *others)]
    publisher.publish("key.ended", b"a")
    await until(lambda: all(each.of("key.ended") for each in received))
    others[0].publish("key.ended", b"b")
    await until(lambda: own.of("key.ended") == [b"b"])
    await until(lambda: received[1].of("key.ended") == [b"a", b"b"])
    assert received[0].of("key.ended") == [b"a"]


async def test_what_a_node_says_arrives_in_its_order(nodes: Nodes) -> None:
    one, two, listener = [await nodes.join() for _ in range(3)]
    received = Received(listener, "number")
    for number in range(500):
        for name, bus in (("one", one), ("two", two)):
            bus.publish("number", f"{name} {number}".encode())
        if number % 7 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(received.of("number")) == 1_000)
    for name in ("one", "two"):
        said = [each for each in received.of("number") if each.startswith(name.encode())]
        assert said == [f"{name} {number}".encode() for number in range(500)]


async def test_what_is_said_in_one_turn_arrives_in_one_call(nodes: Nodes) -> None:
    publisher, listener = await nodes.join(), await nodes.join()
    received = Received(listener, "one", "two")
    for number in range(100):
        publisher.publish("one" if number % 2 else "two", str(number).encode())
    await until(lambda: len(received.of("one")) == len(received.of("two")) == 50)
    assert (len(received.calls["one"]), len(received.calls["two"])) == (1, 1)


async def test_subjects_without_a_subscriber_are_ignored(nodes: Nodes) -> None:
    publisher, listener = await nodes.join(), await nodes.join()
    received = Received(listener, "known")
    publisher.publish("unknown", b"a")
    publisher.publish("known", b"b")
    await until(lambda: received.of("known") == [b"b"])
    assert not received.of("unknown")


async def test_any_bytes_and_much_of_them_arrive(nodes: Nodes) -> None:
    publisher, holder = await nodes.join(), await nodes.join()
    received = Received(holder, "all", "one")
    holder.hold("d", 1)
    await until_held(publisher, {"d"})
    said = [bytes([number, 0, 255]) * 20 * KIB for number in range(20)] + [b""]
    for each in said:
        publisher.publish("all", each)
        publisher.send_to_holder("one", "d", each)
    await until(lambda: len(received.of("all")) == len(received.of("one")) == len(said))
    assert received.of("all") == received.of("one") == said


async def test_a_message_to_the_holder_of_a_device_reaches_no_other_node(nodes: Nodes) -> None:
    publisher, holder, other = [await nodes.join() for _ in range(3)]
    received, not_received = Received(holder, "push", "end"), Received(other, "push", "end")
    holder.hold("d", 1)
    await until_held(publisher, {"d"})
    for number in range(50):
        publisher.send_to_holder("push", "d", str(number).encode())
    await until(lambda: len(received.of("push")) == 50)
    assert received.of("push") == [str(number).encode() for number in range(50)]
    publisher.publish("end", b"")
    await until(lambda: bool(not_received.of("end")))
    assert not not_received.of("push")


async def test_each_of_many_devices_is_found_at_its_node(nodes: Nodes) -> None:
    publisher, one, two = [await nodes.join() for _ in range(3)]
    received = Received(one, "push"), Received(two, "push")
    devices = [f"device-{number}" for number in range(600)]
    for number, device in enumerate(devices):
        (one, two)[number % 2].hold(device, 1)
    await until_held(publisher, set(devices))
    for device in devices:
        publisher.send_to_holder("push", device, device.encode())
    await until(lambda: all(len(each.of("push")) == 300 for each in received))
    assert received[0].of("push") == [each.encode() for each in devices[::2]]
    assert received[1].of("push") == [each.encode() for each in devices[1::2]]


async def test_a_node_sends_nothing_to_itself_nor_about_devices_that_nobody_holds(
    nodes: Nodes,
) -> None:
    publisher, other = await nodes.join(), await nodes.join()
    own, received = Received(publisher, "push"), Received(other, "push", "end")
    publisher.hold("mine", 1)
    await until_held(other, {"mine"})
    publisher.send_to_holder("push", "mine", b"")
    publisher.send_to_holder("push", "nobody's", b"")
    publisher.publish("end", b"")
    await until(lambda: bool(received.of("end")))
    assert not own.of("push")
    assert not received.of("push")


async def test_a_node_finds_what_others_hold(nodes: Nodes) -> None:
    one, two = await nodes.join(), await nodes.join()
    one.hold("a", 1)
    two.hold("b", 1)
    await asyncio.gather(one.settle(), two.settle())
    asked = ["a", "b", "c"]
    assert await one.find_held(asked) == {"b"}
    assert await two.find_held(asked) == {"a"}
    assert await one.find_held([]) == frozenset()


async def test_what_has_settled_is_seen_at_once(nodes: Nodes) -> None:
    holder, publisher = await nodes.join(), await nodes.join()
    received = Received(holder, "push")
    for number in range(20):
        device = f"device-{number}"
        holder.hold(device, 1)
        await holder.settle()
        publisher.send_to_holder("push", device, device.encode())
    await until(lambda: len(received.of("push")) == 20)
    holder.release("device-0")
    await holder.settle()
    assert await publisher.find_held(["device-0", "device-1"]) == {"device-1"}


async def test_a_released_device_is_held_by_nobody(nodes: Nodes) -> None:
    holder, publisher = await nodes.join(), await nodes.join()
    received = Received(holder, "push", "end")
    holder.hold("d", 1)
    await until_held(publisher, {"d"})
    holder.release("d")
    await until_held(publisher, set(), "d")
    publisher.send_to_holder("push", "d", b"")
    publisher.publish("end", b"")
    await until(lambda: bool(received.of("end")))
    assert not received.of("push")


async def test_held_and_released_within_a_turn_is_released(nodes: Nodes) -> None:
    holder, other = await nodes.join(), await nodes.join()
    holder.hold("a", 1)
    holder.release("a")
    holder.hold("b", 1)
    holder.release("b")
    holder.hold("b", 2)
    await holder.settle()
    assert await other.find_held(["a", "b"]) == {"b"}


async def test_the_newer_connection_wins_and_the_former_holder_is_notified(nodes: Nodes) -> None:
    old, new, third = [await nodes.join() for _ in range(3)]
    lost, won = Received(old, "push"), Received(new, "push")
    old.hold("d", 1_000)
    old.hold("other", 1_000)
    await old.settle()
    new.hold("d", 1_001)
    await until(lambda: lost.replaced == ["d"])
    third.send_to_holder("push", "d", b"")
    await until(lambda: bool(won.of("push")))
    assert not lost.of("push")
    assert not won.replaced
    assert await third.find_held(["d", "other"]) == {"d", "other"}


async def test_the_older_connection_loses_and_is_notified(nodes: Nodes) -> None:
    late, holder, third = [await nodes.join() for _ in range(3)]
    lost, kept = Received(late, "push"), Received(holder, "push")
    holder.hold("d", 1_001)
    await holder.settle()
    late.hold("d", 1_000)
    await until(lambda: lost.replaced == ["d"])
    third.send_to_holder("push", "d", b"")
    await until(lambda: bool(kept.of("push")))
    assert not kept.replaced
    assert not lost.of("push")


async def test_a_release_by_the_former_holder_changes_nothing(nodes: Nodes) -> None:
    old, new, third = [await nodes.join() for _ in range(3)]
    lost = Received(old)
    old.hold("d", 1)
    await old.settle()
    new.hold("d", 2)
    await until(lambda: lost.replaced == ["d"])
    old.release("d")
    await old.settle()
    assert await third.find_held(["d"]) == {"d"}


def has_lost(received: Received, count: int) -> bool:
    return len(received.replaced) == count


async def test_a_device_may_come_back_to_the_node_that_lost_it(nodes: Nodes) -> None:
    one, two = await nodes.join(), await nodes.join()
    received_one, received_two = Received(one, "push"), Received(two, "push")
    for since in range(1, 7):
        bus, lost = ((one, received_two), (two, received_one))[since % 2]
        bus.hold("d", since)
        await bus.settle()
        await until(partial(has_lost, lost, since // 2))
    assert await two.find_held(["d"]) == {"d"}
    two.send_to_holder("push", "d", b"a")
    await until(lambda: received_one.of("push") == [b"a"])


async def test_a_new_connection_to_the_same_node_replaces_nothing(nodes: Nodes) -> None:
    holder, other = await nodes.join(), await nodes.join()
    received = Received(holder)
    holder.hold("d", 1)
    await holder.settle()
    holder.hold("d", 2)
    await holder.settle()
    assert await other.find_held(["d"]) == {"d"}
    assert not received.replaced


async def test_of_many_nodes_at_once_one_holds_a_device(nodes: Nodes) -> None:
    buses = [await nodes.join() for _ in range(4)]
    received = [Received(each) for each in buses]
    devices = [f"device-{number}" for number in range(40)]
    for number, device in enumerate(devices):
        for since, bus in enumerate(buses):
            bus.hold(device, (since + number) % 4)
    await until(lambda: sum(len(each.replaced) for each in received) == 3 * 40)
    for number, each in enumerate(received):
        kept = {device for place, device in enumerate(devices) if (number + place) % 4 == 3}
        assert set(devices) - set(each.replaced) == kept


async def test_a_node_that_leaves_holds_nothing_and_the_others_go_on(nodes: Nodes) -> None:
    leaver, one, two = [await nodes.join() for _ in range(3)]
    received = Received(two, "push")
    leaver.hold("a", 1)
    two.hold("b", 1)
    await asyncio.gather(leaver.settle(), two.settle())
    await nodes.leave(leaver)
    await until_held(one, {"b"}, "a", "b")
    one.send_to_holder("push", "b", b"")
    one.send_to_holder("push", "a", b"")
    await until(lambda: bool(received.of("push")))


async def test_a_receiver_that_fails_is_logged_and_the_node_still_receives(nodes: Nodes) -> None:
    publisher, listener = await nodes.join(), await nodes.join()
    received = Received(listener, "good")

    def fail(_said: Sequence[bytes]) -> None:
        raise ValueError

    listener.subscribe("bad", fail)
    with capture_logs() as logs:
        publisher.publish("bad", b"")
        publisher.publish("good", b"1")
        await until(lambda: received.of("good") == [b"1"])
        publisher.publish("good", b"2")
        await until(lambda: received.of("good") == [b"1", b"2"])
    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["receiver_failed"]
    assert listener.is_connected


async def test_a_subject_has_one_receiver(nodes: Nodes) -> None:
    bus = await nodes.join()
    Received(bus, "once")
    with pytest.raises(ValueError, match="once"):
        Received(bus, "once")
