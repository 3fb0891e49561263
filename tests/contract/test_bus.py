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


class Heard:
    """What a node heard about subjects, call by call, and which devices it lost."""

    def __init__(self, bus: Bus, *subjects: str) -> None:
        self.calls: dict[str, list[list[bytes]]] = defaultdict(list)
        self.replaced: list[str] = []
        self.gaps = 0
        for subject in subjects:
            bus.hear(subject, partial(self._receive, subject))
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


async def test_a_node_that_joined_hears(nodes: Nodes) -> None:
    assert (await nodes.join()).is_hearing


async def test_what_is_told_reaches_all_other_nodes(nodes: Nodes) -> None:
    teller, *others = [await nodes.join() for _ in range(3)]
    own, *heard = [Heard(each, "key.ended") for each in (teller, *others)]
    teller.tell("key.ended", b"a")
    await until(lambda: all(each.of("key.ended") for each in heard))
    others[0].tell("key.ended", b"b")
    await until(lambda: own.of("key.ended") == [b"b"])
    await until(lambda: heard[1].of("key.ended") == [b"a", b"b"])
    assert heard[0].of("key.ended") == [b"a"]


async def test_what_a_node_says_arrives_in_its_order(nodes: Nodes) -> None:
    one, two, listener = [await nodes.join() for _ in range(3)]
    heard = Heard(listener, "number")
    for number in range(500):
        for name, bus in (("one", one), ("two", two)):
            bus.tell("number", f"{name} {number}".encode())
        if number % 7 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(heard.of("number")) == 1_000)
    for name in ("one", "two"):
        said = [each for each in heard.of("number") if each.startswith(name.encode())]
        assert said == [f"{name} {number}".encode() for number in range(500)]


async def test_what_is_said_in_one_turn_arrives_in_one_call(nodes: Nodes) -> None:
    teller, listener = await nodes.join(), await nodes.join()
    heard = Heard(listener, "one", "two")
    for number in range(100):
        teller.tell("one" if number % 2 else "two", str(number).encode())
    await until(lambda: len(heard.of("one")) == len(heard.of("two")) == 50)
    assert (len(heard.calls["one"]), len(heard.calls["two"])) == (1, 1)


async def test_subjects_that_nobody_hears_are_ignored(nodes: Nodes) -> None:
    teller, listener = await nodes.join(), await nodes.join()
    heard = Heard(listener, "known")
    teller.tell("unknown", b"a")
    teller.tell("known", b"b")
    await until(lambda: heard.of("known") == [b"b"])
    assert not heard.of("unknown")


async def test_any_bytes_and_much_of_them_arrive(nodes: Nodes) -> None:
    teller, holder = await nodes.join(), await nodes.join()
    heard = Heard(holder, "all", "one")
    holder.hold("d", 1)
    await until_held(teller, {"d"})
    said = [bytes([number, 0, 255]) * 20 * KIB for number in range(20)] + [b""]
    for each in said:
        teller.tell("all", each)
        teller.tell_holder("one", "d", each)
    await until(lambda: len(heard.of("all")) == len(heard.of("one")) == len(said))
    assert heard.of("all") == heard.of("one") == said


async def test_the_holder_of_a_device_is_told_and_nobody_else(nodes: Nodes) -> None:
    teller, holder, other = [await nodes.join() for _ in range(3)]
    heard, unheard = Heard(holder, "push", "end"), Heard(other, "push", "end")
    holder.hold("d", 1)
    await until_held(teller, {"d"})
    for number in range(50):
        teller.tell_holder("push", "d", str(number).encode())
    await until(lambda: len(heard.of("push")) == 50)
    assert heard.of("push") == [str(number).encode() for number in range(50)]
    teller.tell("end", b"")
    await until(lambda: bool(unheard.of("end")))
    assert not unheard.of("push")


async def test_each_of_many_devices_is_found_at_its_node(nodes: Nodes) -> None:
    teller, one, two = [await nodes.join() for _ in range(3)]
    heard = Heard(one, "push"), Heard(two, "push")
    devices = [f"device-{number}" for number in range(600)]
    for number, device in enumerate(devices):
        (one, two)[number % 2].hold(device, 1)
    await until_held(teller, set(devices))
    for device in devices:
        teller.tell_holder("push", device, device.encode())
    await until(lambda: all(len(each.of("push")) == 300 for each in heard))
    assert heard[0].of("push") == [each.encode() for each in devices[::2]]
    assert heard[1].of("push") == [each.encode() for each in devices[1::2]]


async def test_a_node_does_not_tell_itself_nor_about_devices_that_nobody_holds(
    nodes: Nodes,
) -> None:
    teller, other = await nodes.join(), await nodes.join()
    own, heard = Heard(teller, "push"), Heard(other, "push", "end")
    teller.hold("mine", 1)
    await until_held(other, {"mine"})
    teller.tell_holder("push", "mine", b"")
    teller.tell_holder("push", "nobody's", b"")
    teller.tell("end", b"")
    await until(lambda: bool(heard.of("end")))
    assert not own.of("push")
    assert not heard.of("push")


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
    holder, teller = await nodes.join(), await nodes.join()
    heard = Heard(holder, "push")
    for number in range(20):
        device = f"device-{number}"
        holder.hold(device, 1)
        await holder.settle()
        teller.tell_holder("push", device, device.encode())
    await until(lambda: len(heard.of("push")) == 20)
    holder.release("device-0")
    await holder.settle()
    assert await teller.find_held(["device-0", "device-1"]) == {"device-1"}


async def test_a_released_device_is_held_by_nobody(nodes: Nodes) -> None:
    holder, teller = await nodes.join(), await nodes.join()
    heard = Heard(holder, "push", "end")
    holder.hold("d", 1)
    await until_held(teller, {"d"})
    holder.release("d")
    await until_held(teller, set(), "d")
    teller.tell_holder("push", "d", b"")
    teller.tell("end", b"")
    await until(lambda: bool(heard.of("end")))
    assert not heard.of("push")


async def test_held_and_released_within_a_turn_is_released(nodes: Nodes) -> None:
    holder, other = await nodes.join(), await nodes.join()
    holder.hold("a", 1)
    holder.release("a")
    holder.hold("b", 1)
    holder.release("b")
    holder.hold("b", 2)
    await holder.settle()
    assert await other.find_held(["a", "b"]) == {"b"}


async def test_the_newer_connection_wins_and_the_former_holder_is_told(nodes: Nodes) -> None:
    old, new, third = [await nodes.join() for _ in range(3)]
    lost, won = Heard(old, "push"), Heard(new, "push")
    old.hold("d", 1_000)
    old.hold("other", 1_000)
    await old.settle()
    new.hold("d", 1_001)
    await until(lambda: lost.replaced == ["d"])
    third.tell_holder("push", "d", b"")
    await until(lambda: bool(won.of("push")))
    assert not lost.of("push")
    assert not won.replaced
    assert await third.find_held(["d", "other"]) == {"d", "other"}


async def test_the_older_connection_loses_and_is_told(nodes: Nodes) -> None:
    late, holder, third = [await nodes.join() for _ in range(3)]
    lost, kept = Heard(late, "push"), Heard(holder, "push")
    holder.hold("d", 1_001)
    await holder.settle()
    late.hold("d", 1_000)
    await until(lambda: lost.replaced == ["d"])
    third.tell_holder("push", "d", b"")
    await until(lambda: bool(kept.of("push")))
    assert not kept.replaced
    assert not lost.of("push")


async def test_a_release_by_the_former_holder_changes_nothing(nodes: Nodes) -> None:
    old, new, third = [await nodes.join() for _ in range(3)]
    lost = Heard(old)
    old.hold("d", 1)
    await old.settle()
    new.hold("d", 2)
    await until(lambda: lost.replaced == ["d"])
    old.release("d")
    await old.settle()
    assert await third.find_held(["d"]) == {"d"}


def has_lost(heard: Heard, count: int) -> bool:
    return len(heard.replaced) == count


async def test_a_device_may_come_back_to_the_node_that_lost_it(nodes: Nodes) -> None:
    one, two = await nodes.join(), await nodes.join()
    heard_one, heard_two = Heard(one, "push"), Heard(two, "push")
    for since in range(1, 7):
        bus, lost = ((one, heard_two), (two, heard_one))[since % 2]
        bus.hold("d", since)
        await bus.settle()
        await until(partial(has_lost, lost, since // 2))
    assert await two.find_held(["d"]) == {"d"}
    two.tell_holder("push", "d", b"a")
    await until(lambda: heard_one.of("push") == [b"a"])


async def test_a_new_connection_to_the_same_node_replaces_nothing(nodes: Nodes) -> None:
    holder, other = await nodes.join(), await nodes.join()
    heard = Heard(holder)
    holder.hold("d", 1)
    await holder.settle()
    holder.hold("d", 2)
    await holder.settle()
    assert await other.find_held(["d"]) == {"d"}
    assert not heard.replaced


async def test_of_many_nodes_at_once_one_holds_a_device(nodes: Nodes) -> None:
    buses = [await nodes.join() for _ in range(4)]
    heard = [Heard(each) for each in buses]
    devices = [f"device-{number}" for number in range(40)]
    for number, device in enumerate(devices):
        for since, bus in enumerate(buses):
            bus.hold(device, (since + number) % 4)
    await until(lambda: sum(len(each.replaced) for each in heard) == 3 * 40)
    for number, each in enumerate(heard):
        kept = {device for place, device in enumerate(devices) if (number + place) % 4 == 3}
        assert set(devices) - set(each.replaced) == kept


async def test_a_node_that_leaves_holds_nothing_and_the_others_go_on(nodes: Nodes) -> None:
    leaver, one, two = [await nodes.join() for _ in range(3)]
    heard = Heard(two, "push")
    leaver.hold("a", 1)
    two.hold("b", 1)
    await asyncio.gather(leaver.settle(), two.settle())
    await nodes.leave(leaver)
    await until_held(one, {"b"}, "a", "b")
    one.tell_holder("push", "b", b"")
    one.tell_holder("push", "a", b"")
    await until(lambda: bool(heard.of("push")))


async def test_a_receiver_that_fails_is_logged_and_the_node_still_hears(nodes: Nodes) -> None:
    teller, listener = await nodes.join(), await nodes.join()
    heard = Heard(listener, "good")

    def fail(_said: Sequence[bytes]) -> None:
        raise ValueError

    listener.hear("bad", fail)
    with capture_logs() as logs:
        teller.tell("bad", b"")
        teller.tell("good", b"1")
        await until(lambda: heard.of("good") == [b"1"])
        teller.tell("good", b"2")
        await until(lambda: heard.of("good") == [b"1", b"2"])
    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["receiver_failed"]
    assert listener.is_hearing


async def test_a_subject_has_one_receiver(nodes: Nodes) -> None:
    bus = await nodes.join()
    Heard(bus, "once")
    with pytest.raises(ValueError, match="once"):
        Heard(bus, "once")
