"""Messages to devices: durable before they are offered, never sent twice, none missed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clarion.push.acknowledgements import ROWS_LIMIT
from clarion.push.model import (
    Message,
    MessageReason,
    MessageStatus,
    PushPriority,
    StoredMessage,
    make_message_id,
)
from clarion.push.sql.messages import add_steps
from clarion.push.topic_dispatch import CHUNK
from clarion.sockets.protocol import CloseCode
from clarion.store.statement import Unit
from tests.factories import MINUTE, make_message
from tests.replacing import replace
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway, Phone

HIGH, MIDDLE, LOW = PushPriority


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


# Pushes.


async def test_a_push_to_an_offline_device_is_stored(gateway: Gateway) -> None:
    assert await gateway.push("a") is True
    assert await gateway.state_of("a") == (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def test_a_push_to_a_connected_device_is_sent(gateway: Gateway) -> None:
    phone = await gateway.connect()
    assert await gateway.push("a") is True
    assert phone.ids == ["a"]
    assert await gateway.state_of("a") == (MessageStatus.PENDING, None)


async def test_a_message_is_stored_before_it_is_offered(gateway: Gateway) -> None:
    phone = await gateway.connect()
    gateway.gates.are_open = False
    pushing = asyncio.ensure_future(gateway.push("a"))
    await gateway.gates.let_pass()
    assert await gateway.stored() == ["a"]
    assert phone.ids == []
    assert not pushing.done()
    await gateway.gates.let_all_pass()
    assert phone.ids == ["a"]
    assert await pushing is True


async def test_a_push_that_cannot_be_stored_is_not_offered(gateway: Gateway) -> None:
    phone = await gateway.connect()
    gateway.gates.failures = [True]
    with pytest.raises(Exception, match="did not answer"):
        await gateway.push("a")
    assert phone.ids == []


async def test_a_repeat_is_not_offered_again(gateway: Gateway) -> None:
    phone = await gateway.connect()
    assert await gateway.push("a") is True
    assert await gateway.push("a") is False
    phone.acknowledge()
    await settle()
    assert await gateway.push("a") is False
    assert phone.ids == ["a"]


async def test_two_repeats_at_once_are_offered_once(gateway: Gateway) -> None:
    phone = await gateway.connect()
    assert sorted(await asyncio.gather(gateway.push("a"), gateway.push("a"))) == [False, True]
    assert phone.ids == ["a"]


async def test_a_device_that_connects_while_a_push_is_stored_gets_it_once(gateway: Gateway) -> None:
    gateway.gates.are_open = False
    pushing = asyncio.ensure_future(gateway.push("a"))
    await gateway.gates.let_pass()
    phone = gateway.start_connecting()
    await gateway.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_a_push_that_is_stored_after_a_new_connection_has_read_all_is_sent(
    gateway: Gateway,
) -> None:
    gateway.gates.are_open = False
    pushing = asyncio.ensure_future(gateway.push("a"))
    await settle()
    phone = gateway.start_connecting()
    while gateway.gates.count > 1 or not phone.is_ready:
        await gateway.gates.let_pass(1)
    assert phone.ids == []
    await gateway.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_a_push_that_is_stored_while_the_store_is_read_is_sent(gateway: Gateway) -> None:
    phone = await gateway.connect()
    gateway.gates.are_open = False
    phone.carry_out(phone.session.fall_behind())
    await gateway.gates.let_pass()  # it has read, and has not returned what
    pushing = asyncio.ensure_future(gateway.push("a"))
    for _ in range(2):
        await gateway.gates.let_pass(1)
    await gateway.gates.let_all_pass()
    assert await pushing is True
    assert phone.ids == ["a"]


async def test_missed_messages_are_sent_by_priority_then_oldest_first(gateway: Gateway) -> None:
    for name, priority in (("a", LOW), ("b", HIGH), ("c", MIDDLE), ("d", HIGH)):
        await gateway.push(name, priority=priority)
    assert (await gateway.connect()).ids == ["b", "d", "c", "a"]


async def test_a_long_backlog_is_sent_in_chunks_as_it_is_acknowledged(gateway: Gateway) -> None:
    names = [f"{n:03}" for n in range(3 * CHUNK + 7)]
    for name in names:
        await gateway.push(name)
    phone = await gateway.connect()
    assert len(phone.ids) == CHUNK
    while phone.unacknowledged:
        phone.acknowledge(10)
        await settle()
    assert phone.ids == names
    assert await gateway.stored() == []


async def test_an_acknowledged_message_is_delivered(gateway: Gateway) -> None:
    phone = await gateway.connect()
    await gateway.push("a")
    phone.acknowledge()
    await settle()
    assert await gateway.state_of("a") == (MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)
    assert phone.session.in_hand == set()


async def test_an_unacknowledged_message_is_sent_again(gateway: Gateway) -> None:
    first = await gateway.connect()
    await gateway.push("a")
    gateway.dispatch.disconnect(first)
    assert (await gateway.connect()).ids == ["a"]


async def test_one_attempt_at_an_offline_device_expires(gateway: Gateway) -> None:
    assert await gateway.push("a", is_stored=False) is True
    assert await gateway.state_of("a") == (MessageStatus.EXPIRED, MessageReason.NOT_STORED)
    assert (await gateway.connect()).ids == []


async def test_one_attempt_at_a_connected_device_is_made(gateway: Gateway) -> None:
    phone = await gateway.connect()
    await gateway.push("a", is_stored=False)
    assert phone.ids == ["a"]
    phone.acknowledge()
    await settle()
    assert (await gateway.state_of("a"))[0] is MessageStatus.DELIVERED


async def test_a_newer_message_replaces_the_older_that_waits(gateway: Gateway) -> None:
    await gateway.push("a", collapse_id="c")
    await gateway.push("b", collapse_id="c")
    assert (await gateway.connect()).ids == ["b"]
    assert await gateway.state_of("a") == (MessageStatus.EXPIRED, MessageReason.COLLAPSED)


async def test_what_is_stored_beyond_the_limit_is_dropped_least_important_first() -> None:
    gateway = Gateway(stored_limit=32)
    for n in range(100):
        await gateway.push(f"{n:02}", priority=HIGH if n < 10 else LOW)
    assert 32 <= len(await gateway.stored()) <= 32 + 32 // 16
    assert (await gateway.stored())[:10] == [f"{n:02}" for n in range(10)]
    assert (await gateway.stored())[-1] == "99"


async def test_sequences_grow_also_when_the_clock_is_set_back(gateway: Gateway) -> None:
    for n in range(4):
        await gateway.push(f"{n}")
        gateway.clock.advance((-MINUTE, 0, 5)[n % 3])
    assert await gateway.stored() == ["0", "1", "2", "3"]


# Connections.


async def test_the_newest_connection_of_a_device_gets_the_messages(gateway: Gateway) -> None:
    older, newer = await gateway.connect(), await gateway.connect()
    assert older.close is not None
    assert older.close.code is CloseCode.REPLACED
    gateway.dispatch.disconnect(older)
    await gateway.push("a")
    assert (older.ids, newer.ids) == ([], ["a"])


async def test_a_connection_that_closes_during_connect_does_not_get_ready(gateway: Gateway) -> None:
    gateway.gates.are_open = False
    phone = gateway.start_connecting()
    await gateway.gates.let_pass()
    gateway.dispatch.disconnect(phone)
    await gateway.gates.let_all_pass()
    assert not phone.is_ready
    assert len(gateway.connections) == 0


async def test_devices_that_connect_and_disconnect_are_seen(gateway: Gateway) -> None:
    phone = await gateway.connect()
    expected = {gateway.device.id: gateway.clock.now()}
    assert gateway.dispatch.seen == expected
    gateway.dispatch.seen.clear()
    gateway.clock.milliseconds += MINUTE
    gateway.dispatch.disconnect(phone)
    assert gateway.dispatch.seen == expected


async def test_a_connection_is_newer_than_those_before_though_the_clock_was_set_back(
    gateway: Gateway,
) -> None:
    before = gateway.clock.now() + MINUTE
    phone = await gateway.connect(replace(gateway.device, connected_at=before))
    assert phone.session.connected_at == gateway.dispatch.seen[gateway.device.id] == before + 1


async def test_an_acknowledgement_of_a_replaced_connection_counts(gateway: Gateway) -> None:
    older = await gateway.connect()
    await gateway.push("a")
    older.acknowledge()
    newer = await gateway.connect()
    await settle()
    assert (await gateway.state_of("a"))[0] is MessageStatus.DELIVERED
    assert newer.ids in ([], ["a"])


async def test_low_priority_waits_for_the_window(gateway: Gateway) -> None:
    phone = await gateway.connect()
    await gateway.push("a", priority=LOW)
    assert phone.ids == []
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.ids == ["a"]


# The store fails; the loop skips the time in which nothing is to be done.


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop in which the next timer is always due."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            due = self._scheduled[0].when() - self.time()  # type: ignore[attr-defined]
            self.skipped_s += max(0.0, due)
        super()._run_once()  # type: ignore[misc]


def run_in_no_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(work())


@pytest.mark.parametrize("before", range(6))
def test_a_read_that_failed_is_made_again(before: int) -> None:
    async def work() -> None:
        gateway = Gateway()
        topics = ("news", "sport")
        for topic in topics:
            await gateway.subscribe(topic)
        await gateway.push("a")
        missed = [(await gateway.publish(topic)).id for topic in topics]
        phone = Phone(gateway.dispatch, gateway.clock)
        await gateway.dispatch.connect(phone, gateway.device, None)
        gateway.gates.failures = [False] * before + [True] * 2
        while gateway.dispatch.tasks._tasks:
            await asyncio.wait(gateway.dispatch.tasks._tasks)
        assert sorted(phone.ids) == sorted(["a", *missed])

    run_in_no_time(work)


@pytest.mark.parametrize("before", range(4))
def test_an_acknowledgement_that_could_not_be_recorded_is_recorded_later(before: int) -> None:
    async def work() -> None:
        gateway = Gateway()
        await gateway.subscribe()
        phone = await gateway.connect()
        await gateway.push("a")
        await gateway.publish()
        gateway.gates.failures = [False] * before + [True] * 2
        phone.acknowledge()
        await gateway.dispatch.tasks.finish(10)
        assert await gateway.stored() == []
        assert await gateway.cursor() == 1
        assert phone.session.in_hand == set()

    run_in_no_time(work)


def test_work_that_does_not_end_is_cancelled_after_the_grace() -> None:
    async def work() -> None:
        gateway = Gateway()
        gateway.gates.are_open = False
        gateway.start_connecting()
        await settle()
        await gateway.dispatch.tasks.finish(10)
        await settle()
        assert not gateway.dispatch.tasks._tasks
        assert not gateway.dispatch.topics._unsubscribed

    run_in_no_time(work)


async def test_many_acknowledgements_of_one_moment_are_recorded_in_parts(gateway: Gateway) -> None:
    phone = await gateway.connect()
    messages = tuple(make_message(gateway.device.id) for _ in range(2 * ROWS_LIMIT + 1))
    before = gateway.store.writes
    gateway.dispatch.acknowledgements.add(phone, messages)
    await settle()
    assert gateway.store.writes - before == 3


# Messages that others store.


async def store_one(gateway: Gateway, **changes: Any) -> tuple[Message, MessageStatus]:
    """Store a message of a notification as part of another unit."""
    message_id = make_message_id("n", gateway.device.id)
    content = gateway.make_push(**changes)
    message, status, reason = gateway.dispatch.make_message(
        gateway.device, content, message_id, "n"
    )
    await gateway.store.open.write(Unit("n", add_steps([StoredMessage(message, status, reason)])))
    return message, status


async def test_a_message_that_others_stored_is_announced_and_acknowledged(
    gateway: Gateway,
) -> None:
    phone = await gateway.connect()
    message, status = await store_one(gateway)
    assert (status, message.notification_id) == (MessageStatus.PENDING, "n")
    assert phone.ids == []
    await gateway.dispatch.announce(message, status)
    assert phone.ids == [message.id]
    phone.acknowledge()
    await settle()
    assert await gateway.state_of(message.id) == (
        MessageStatus.DELIVERED,
        MessageReason.ACKNOWLEDGED,
    )


async def test_what_others_stored_waits_for_the_device(gateway: Gateway) -> None:
    message, status = await store_one(gateway)
    assert status is MessageStatus.QUEUED
    await gateway.dispatch.announce(message, status)
    phone = await gateway.connect()
    assert phone.ids == [message.id]


@pytest.mark.parametrize("is_delivered", [False, True])
async def test_a_repeat_that_others_stored_is_sent_once(
    gateway: Gateway, *, is_delivered: bool
) -> None:
    phone = await gateway.connect()
    message, status = await store_one(gateway)
    if is_delivered:
        await gateway.dispatch.announce(message, status)
        phone.acknowledge()
        await settle()
    again, status = await store_one(gateway)
    assert again.id == message.id
    await gateway.dispatch.announce(again, status, is_repeat=True)
    await settle()
    assert phone.ids == [message.id]


async def test_what_others_stored_counts_for_the_limit() -> None:
    gateway = Gateway(stored_limit=16)
    for n in range(40):
        message, status, reason = gateway.dispatch.make_message(
            gateway.device, gateway.make_push(), f"m{n}", f"n{n}"
        )
        await gateway.store.open.write(
            Unit("n", add_steps([StoredMessage(message, status, reason)]))
        )
        await gateway.dispatch.announce(message, status)
    assert len(await gateway.stored()) <= 17
