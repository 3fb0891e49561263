"""From a push to the device and back: durable before offered, never twice, nothing missed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clarion.push.dispatch import CHUNK
from clarion.push.model import MessageReason, MessageStatus, PushPriority
from clarion.sockets.protocol import CloseCode
from tests.factories import MINUTE
from tests.unit.push.memory import settle
from tests.unit.push.phone import House, Phone

HIGH, MIDDLE, LOW = PushPriority


@pytest.fixture
def house() -> House:
    return House()


def state_of(house: House, message_id: str) -> tuple[MessageStatus, MessageReason | None]:
    _, status, reason = house.messages.entries[house.device.id, message_id]
    return status, reason


# Pushes.


async def test_a_push_to_a_device_that_is_away_is_stored(house: House) -> None:
    assert await house.push("a") is True
    assert state_of(house, "a") == (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def test_a_push_to_a_device_that_is_here_goes_out(house: House) -> None:
    phone = await house.connect()
    assert await house.push("a") is True
    assert phone.ids == ["a"]
    assert state_of(house, "a") == (MessageStatus.PENDING, None)


async def test_a_message_is_stored_before_it_is_offered(house: House) -> None:
    phone = await house.connect()
    house.gates.are_open = False
    pushing = asyncio.ensure_future(house.push("a"))
    await house.gates.let_pass()
    assert house.stored() == ["a"]
    assert phone.ids == []
    assert not pushing.done()
    await house.gates.let_all_pass()
    assert phone.ids == ["a"]
    assert await pushing is True


async def test_a_push_that_cannot_be_stored_is_not_offered(house: House) -> None:
    phone = await house.connect()
    house.gates.trouble = [True]
    with pytest.raises(Exception, match="did not answer"):
        await house.push("a")
    assert phone.ids == []


async def test_a_repeat_is_not_offered_again(house: House) -> None:
    phone = await house.connect()
    assert await house.push("a") is True
    assert await house.push("a") is False
    phone.acknowledge()
    await settle()
    assert await house.push("a") is False
    assert phone.ids == ["a"]


async def test_two_repeats_at_once_are_offered_once(house: House) -> None:
    phone = await house.connect()
    assert sorted(await asyncio.gather(house.push("a"), house.push("a"))) == [False, True]
    assert phone.ids == ["a"]


async def test_a_device_that_comes_while_a_push_is_stored_gets_it_once(house: House) -> None:
    house.gates.are_open = False
    pushing = asyncio.ensure_future(house.push("a"))
    await house.gates.let_pass()
    phone = house.start_connecting()
    await house.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_a_push_that_is_stored_when_a_new_device_has_read_all_goes_out(
    house: House,
) -> None:
    house.gates.are_open = False
    pushing = asyncio.ensure_future(house.push("a"))
    await settle()
    phone = house.start_connecting()
    while house.gates.count > 1 or not phone.is_ready:
        await house.gates.let_pass(1)
    assert phone.ids == []
    await house.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_a_push_that_is_stored_while_the_store_is_read_goes_out(house: House) -> None:
    phone = await house.connect()
    house.gates.are_open = False
    phone.carry_out(phone.session.fall_behind())
    await house.gates.let_pass()  # it has read, and has not said what
    pushing = asyncio.ensure_future(house.push("a"))
    for _ in range(2):
        await house.gates.let_pass(1)
    await house.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_what_was_missed_comes_by_priority_then_oldest_first(house: House) -> None:
    for name, priority in (("a", LOW), ("b", HIGH), ("c", MIDDLE), ("d", HIGH)):
        await house.push(name, priority=priority)
    assert (await house.connect()).ids == ["b", "d", "c", "a"]


async def test_a_long_backlog_comes_in_chunks_as_it_is_acknowledged(house: House) -> None:
    names = [f"{n:03}" for n in range(3 * CHUNK + 7)]
    for name in names:
        await house.push(name)
    phone = await house.connect()
    assert len(phone.ids) == CHUNK
    while phone.unacknowledged:
        phone.acknowledge(10)
        await settle()
    assert phone.ids == names
    assert house.stored() == []


async def test_an_acknowledged_message_is_delivered(house: House) -> None:
    phone = await house.connect()
    await house.push("a")
    phone.acknowledge()
    await settle()
    assert state_of(house, "a") == (MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)
    assert phone.session.in_hand == set()


async def test_what_was_not_acknowledged_comes_again(house: House) -> None:
    first = await house.connect()
    await house.push("a")
    house.dispatch.disconnect(first)
    assert (await house.connect()).ids == ["a"]


async def test_one_attempt_at_a_device_that_is_away_has_expired(house: House) -> None:
    assert await house.push("a", is_stored=False) is True
    assert state_of(house, "a") == (MessageStatus.EXPIRED, MessageReason.NOT_STORED)
    assert (await house.connect()).ids == []


async def test_one_attempt_at_a_device_that_is_here_is_made(house: House) -> None:
    phone = await house.connect()
    await house.push("a", is_stored=False)
    assert phone.ids == ["a"]
    phone.acknowledge()
    await settle()
    assert state_of(house, "a")[0] is MessageStatus.DELIVERED


async def test_a_newer_message_replaces_the_older_that_waits(house: House) -> None:
    await house.push("a", collapse_id="c")
    await house.push("b", collapse_id="c")
    assert (await house.connect()).ids == ["b"]
    assert state_of(house, "a") == (MessageStatus.EXPIRED, MessageReason.COLLAPSED)


async def test_what_is_stored_beyond_the_limit_is_dropped_least_important_first() -> None:
    house = House(stored_limit=32)
    for n in range(100):
        await house.push(f"{n:02}", priority=HIGH if n < 10 else LOW)
    assert 32 <= len(house.stored()) <= 32 + 32 // 16
    assert house.stored()[:10] == [f"{n:02}" for n in range(10)]
    assert house.stored()[-1] == "99"


async def test_sequences_grow_also_when_the_clock_is_set_back(house: House) -> None:
    for n in range(4):
        await house.push(f"{n}")
        house.clock.advance((-MINUTE, 0, 5)[n % 3])
    assert house.stored() == ["0", "1", "2", "3"]


# Connections.


async def test_the_newest_connection_of_a_device_gets_the_messages(house: House) -> None:
    older, newer = await house.connect(), await house.connect()
    assert older.close is not None
    assert older.close.code is CloseCode.REPLACED
    house.dispatch.disconnect(older)
    await house.push("a")
    assert (older.ids, newer.ids) == ([], ["a"])


async def test_a_connection_that_ends_while_it_is_let_in_is_not_let_in(house: House) -> None:
    house.gates.are_open = False
    phone = house.start_connecting()
    await house.gates.let_pass()
    house.dispatch.disconnect(phone)
    await house.gates.let_all_pass()
    assert not phone.is_ready
    assert len(house.connections) == 0


async def test_who_came_and_went_is_noted(house: House) -> None:
    phone = await house.connect()
    assert house.dispatch.seen == {house.device.id}
    house.dispatch.seen.clear()
    house.dispatch.disconnect(phone)
    assert house.dispatch.seen == {house.device.id}


async def test_an_acknowledgement_of_a_replaced_connection_counts(house: House) -> None:
    older = await house.connect()
    await house.push("a")
    older.acknowledge()
    newer = await house.connect()
    await settle()
    assert state_of(house, "a")[0] is MessageStatus.DELIVERED
    assert newer.ids in ([], ["a"])


async def test_low_priority_waits_for_the_window(house: House) -> None:
    phone = await house.connect()
    await house.push("a", priority=LOW)
    assert phone.ids == []
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.ids == ["a"]


# The store in trouble: time flies where nobody has anything to do.


class FlyingLoop(asyncio.SelectorEventLoop):
    """An event loop in which the next timer is always due."""

    flown_s = 0.0

    def time(self) -> float:
        return super().time() + self.flown_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            due = self._scheduled[0].when() - self.time()  # type: ignore[attr-defined]
            self.flown_s += max(0.0, due)
        super()._run_once()  # type: ignore[misc]


def run_in_no_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=FlyingLoop) as runner:
        runner.run(work())


@pytest.mark.parametrize("before", range(6))
def test_a_read_that_failed_is_made_again(before: int) -> None:
    async def work() -> None:
        house = House()
        topics = ("news", "sport")
        for topic in topics:
            await house.dispatch.subscribe(house.device, topic)
        await house.push("a")
        missed = [(await house.publish(topic)).id for topic in topics]
        phone = Phone(house.dispatch, house.clock)
        await house.dispatch.connect(phone, house.device, None)
        house.gates.trouble = [False] * before + [True] * 2
        while house.dispatch._tasks:
            await asyncio.wait(house.dispatch._tasks)
        assert sorted(phone.ids) == sorted(["a", *missed])

    run_in_no_time(work)


@pytest.mark.parametrize("before", range(4))
def test_an_acknowledgement_that_could_not_be_recorded_is_recorded_later(before: int) -> None:
    async def work() -> None:
        house = House()
        await house.dispatch.subscribe(house.device, "news")
        phone = await house.connect()
        await house.push("a")
        await house.publish()
        house.gates.trouble = [False] * before + [True] * 2
        phone.acknowledge()
        await house.dispatch.finish(10)
        assert house.stored() == []
        assert house.cursor() == 1
        assert phone.session.in_hand == set()

    run_in_no_time(work)


def test_what_does_not_end_is_not_waited_for() -> None:
    async def work() -> None:
        house = House()
        house.gates.are_open = False
        house.start_connecting()
        await settle()
        await house.dispatch.finish(10)
        await settle()
        assert not house.dispatch._tasks
        assert not house.dispatch._left

    run_in_no_time(work)
