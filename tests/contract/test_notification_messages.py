"""The `Messages` and `Devices` ports with messages of notifications: what becomes of deliveries."""

import asyncio
from itertools import count
from typing import Any

import pytest

from clarion.catalog.model import Channel
from clarion.history.model import Attempt, Delivery, DeliveryStatus, ReasonCode
from clarion.history.sql import deliveries as steps
from clarion.history.sql.deliveries import SqlDeliveries
from clarion.push.messages import History, Messages
from clarion.push.model import (
    Device,
    DeviceDetails,
    InvalidationReason,
    Message,
    MessageReason,
    MessageStatus,
    StoredMessage,
    make_message_id,
)
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlMessages, add_steps
from clarion.store.engine import Engine
from clarion.store.statement import Unit
from tests.factories import DAY, NOW, make_device, make_message, new_app_id

QUEUED = (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)
SENT = (DeliveryStatus.SENT, ReasonCode.ALLOWED)
DELIVERED = (DeliveryStatus.DELIVERED, ReasonCode.ALLOWED)
EXPIRED = (DeliveryStatus.EXPIRED, ReasonCode.EXPIRED)
FAILED = (DeliveryStatus.FAILED, ReasonCode.ADDRESS_GONE)
_numbers = count(1)


class Sent:
    """Notifications that were sent to devices of our own gateway."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.app_id = new_app_id()

    async def send(
        self,
        *device_ids: str,
        status: DeliveryStatus = DeliveryStatus.SENT,
        notification_id: str = "",
        **changes: Any,
    ) -> list[Message]:
        """Store a delivery, an attempt for each device, and the messages, in one unit."""
        notification_id = notification_id or f"n-{self.app_id}-{next(_numbers)}"
        made = [
            make_message(
                each,
                id=make_message_id(notification_id, each),
                app_id=self.app_id,
                notification_id=notification_id,
                **changes,
            )
            for each in device_ids
        ]
        delivery = Delivery(
            notification_id=notification_id,
            channel=Channel.PUSH,
            app_id=self.app_id,
            user_id="ana",
            status=status,
            reason=ReasonCode.ALLOWED,
            rule="default",
            decided_at=NOW,
        )
        attempts = [
            Attempt(
                notification_id=notification_id,
                channel=Channel.PUSH,
                number=1,
                device_id=each,
                status="sent",
                attempted_at=NOW,
            )
            for each in device_ids
        ]
        storing = add_steps([StoredMessage(message, *QUEUED) for message in made])
        unit = (steps.put([delivery]), steps.add_attempts(attempts), *storing)
        await self.engine.write(Unit(notification_id, unit, self.app_id))
        return made

    async def delivery(self, message: Message) -> Delivery:
        notification_id = message.notification_id or ""
        found = await SqlDeliveries(self.engine).find_worked_on(self.app_id, [notification_id])
        (delivery,) = found[notification_id]
        return delivery

    async def state(self, message: Message) -> tuple[DeliveryStatus, ReasonCode]:
        delivery = await self.delivery(message)
        return delivery.status, delivery.reason

    async def attempts(self, message: Message) -> dict[str, str]:
        """Return the status of each device's attempt."""
        found = await SqlDeliveries(self.engine).list_attempts(message.notification_id or "")
        return {each.device_id: each.status for each in found}


@pytest.fixture
def sent(engine: Engine) -> Sent:
    return Sent(engine)


async def waiting(messages: Messages, device_id: str) -> list[Message]:
    return list(await messages.waiting(device_id, now=NOW, limit=100))


async def test_a_message_of_a_notification_comes_back_as_stored(
    messages: Messages, sent: Sent
) -> None:
    made = await sent.send("a", "b")
    assert [*await waiting(messages, "a"), *await waiting(messages, "b")] == made
    other = make_message("c", notification_id="n")
    assert await messages.add(other, *QUEUED) is True
    assert await waiting(messages, "c") == [other]


async def test_the_first_acknowledgement_makes_the_delivery_delivered(
    messages: Messages, sent: Sent
) -> None:
    on_a, on_b = await sent.send("a", "b")
    await messages.acknowledge([], NOW + 5, [on_a])
    assert await sent.state(on_a) == DELIVERED
    assert (await sent.delivery(on_a)).delivered_at == NOW + 5
    assert await sent.attempts(on_a) == {"a": "delivered", "b": "sent"}
    await messages.acknowledge([], NOW + 9, [on_b])
    assert (await sent.delivery(on_a)).delivered_at == NOW + 5
    assert await sent.attempts(on_a) == {"a": "delivered", "b": "delivered"}
    assert await waiting(messages, "a") == await waiting(messages, "b") == []


async def test_many_of_both_kinds_are_acknowledged_at_once(
    messages: Messages, sent: Sent, history: History
) -> None:
    made = [(await sent.send("a"))[0] for _ in range(20)]
    plain = [make_message("a", app_id=sent.app_id) for _ in range(20)]
    await asyncio.gather(*(messages.add(each, *QUEUED) for each in plain))
    await messages.acknowledge([(each.device_id, each.id) for each in plain], NOW, made)
    assert {await sent.state(each) for each in made} == {DELIVERED}
    page = await history.list(sent.app_id, device_id="a", after=None, limit=100)
    assert {each.status for each in page.items} == {MessageStatus.DELIVERED}


async def test_an_acknowledgement_before_the_last_attempt_counts(
    messages: Messages, sent: Sent
) -> None:
    (message,) = await sent.send("a", status=DeliveryStatus.QUEUED)
    await messages.acknowledge([], NOW, [message])
    assert await sent.state(message) == DELIVERED


async def test_messages_without_a_notification_take_no_more_steps(engine: Engine) -> None:
    written: list[Unit] = []

    class Recording:
        async def write(self, unit: Unit) -> Any:
            written.append(unit)
            return await engine.write(unit)

        fetch = engine.fetch
        fetch_in_background = engine.fetch_in_background

    messages = SqlMessages(Recording())  # type: ignore[arg-type]
    made = [make_message(f"plain-{n}", expires_at=NOW + n) for n in range(3)]
    for each in made:
        await messages.add(each, *QUEUED)
    await messages.acknowledge([(made[2].device_id, made[2].id)], NOW)
    await messages.trim(made[1].device_id, 0, NOW)
    assert await messages.expire(NOW + 1, 100) == 1
    assert [len(unit.steps) for unit in written] == [1] * 6


async def test_a_delivery_expires_with_its_last_message(messages: Messages, sent: Sent) -> None:
    on_a, on_b = await sent.send("a", "b", expires_at=NOW + 10)
    await messages.acknowledge([], NOW, [on_b._replace(notification_id=None)])
    (later,) = await sent.send("c", notification_id=on_a.notification_id or "")
    await messages.expire(NOW + 10, 100)
    assert await sent.state(on_a) == SENT
    await messages.expire(NOW + DAY, 100)
    # One of its messages was delivered, though nobody recorded that of the delivery.
    assert await sent.state(later) == SENT


async def test_all_messages_of_a_delivery_may_expire_at_once(
    messages: Messages, sent: Sent
) -> None:
    on_a, _ = await sent.send("a", "b", expires_at=NOW + 10)
    other, _ = await sent.send("a", "b", expires_at=NOW + 11)
    assert await messages.expire(NOW + 10, 100) == 2
    assert await sent.state(on_a) == EXPIRED
    assert (await sent.delivery(on_a)).decided_at == NOW + 10
    assert await sent.state(other) == SENT


async def test_a_delivery_waits_for_the_message_that_is_left(
    messages: Messages, sent: Sent
) -> None:
    on_a, on_b = await sent.send("a", "b")
    await messages.fail(on_a.device_id, on_a.id, NOW)
    assert await sent.state(on_a) == SENT
    await messages.acknowledge([], NOW, [on_b])
    assert await sent.state(on_a) == DELIVERED
    (alone,) = await sent.send("a")
    await messages.fail(alone.device_id, alone.id, NOW)
    assert await sent.state(alone) == FAILED


async def test_what_is_removed_as_too_much_ends_its_delivery(
    messages: Messages, sent: Sent
) -> None:
    (older,), (newer,) = await sent.send("a"), await sent.send("a")
    assert await messages.trim("a", 1, NOW + 1) == 1
    assert await sent.state(older) == EXPIRED
    assert await sent.state(newer) == SENT


@pytest.mark.parametrize("status", [DeliveryStatus.QUEUED, DeliveryStatus.DELIVERED])
async def test_only_a_delivery_that_is_sent_ends(
    messages: Messages, devices: Devices, sent: Sent, status: DeliveryStatus
) -> None:
    device = make_device(sent.app_id)
    await devices.add(device)
    (one,) = await sent.send("a", status=status, expires_at=NOW)
    (two,) = await sent.send(device.id, status=status)
    await messages.expire(NOW, 100)
    await devices.invalidate(sent.app_id, device.id, InvalidationReason.REVOKED, NOW)
    assert [(await sent.state(each))[0] for each in (one, two)] == [status] * 2


async def test_a_newer_notification_replaces_the_older_with_its_collapse_id(
    messages: Messages, sent: Sent
) -> None:
    older = await sent.send("a", "b", collapse_id="c")
    only_a = await sent.send("a", collapse_id="c")
    assert await sent.state(older[0]) == SENT  # it waits for the other device
    newer = await sent.send("a", "b", collapse_id="c")
    assert [await sent.state(each[0]) for each in (older, only_a, newer)] == [
        EXPIRED,
        EXPIRED,
        SENT,
    ]
    assert [*await waiting(messages, "a"), *await waiting(messages, "b")] == newer


async def test_of_one_batch_the_newest_notification_is_left(messages: Messages, sent: Sent) -> None:
    made = await asyncio.gather(*(sent.send("a", "b", collapse_id="c") for _ in range(10)))
    newest = max(made, key=lambda each: each[0].sequence)
    assert await waiting(messages, "a") == [newest[0]]
    states = [await sent.state(each[0]) for each in made]
    assert (states.count(SENT), states.count(EXPIRED)) == (1, 9)
    assert await sent.state(newest[0]) == SENT


async def test_one_that_is_stored_after_a_newer_one_ends_its_delivery(
    messages: Messages, sent: Sent
) -> None:
    """Another node, or a worker whose first answer was lost, may be slower."""
    late = make_message().sequence
    (newer,) = await sent.send("a", collapse_id="c")
    (older,) = await sent.send("a", collapse_id="c", sequence=late)
    several = await sent.send("a", "b", collapse_id="c", sequence=late)
    assert await waiting(messages, "a") == [newer]
    assert [await sent.state(each) for each in (newer, older)] == [SENT, EXPIRED]
    assert await sent.state(several[0]) == SENT  # it waits for the other device


async def test_pushes_and_notifications_do_not_collapse_each_other(
    messages: Messages, sent: Sent
) -> None:
    (notifying,) = await sent.send("a", collapse_id="c")
    push = make_message("a", app_id=sent.app_id, collapse_id="c")
    await messages.add(push, *QUEUED)
    (newer,) = await sent.send("a", collapse_id="c")
    assert await waiting(messages, "a") == [push, newer]
    assert await sent.state(notifying) == EXPIRED


async def test_a_repeat_changes_nothing(messages: Messages, sent: Sent) -> None:
    (first,) = await sent.send("a", collapse_id="c")
    (second,) = await sent.send("a", collapse_id="c")
    for each in (first, second, first):
        again = each._replace(sequence=make_message().sequence, created_at=NOW + 1)
        await sent.engine.write(Unit("a", add_steps([StoredMessage(again, *QUEUED)])))
    assert await waiting(messages, "a") == [second]
    assert await sent.state(second) == SENT


async def registered(devices: Devices, sent: Sent, **changes: Any) -> Device:
    device = make_device(sent.app_id, details=DeviceDetails(user_id="ana"), **changes)
    assert await devices.add(device) is True
    return device


async def take_over(devices: Devices, device: Device) -> None:
    taken = make_device(
        device.app_id, token_hash=device.token_hash, details=DeviceDetails(user_id="bo")
    )
    assert await devices.refresh(taken, is_by_app=True)


ENDING: dict[str, Any] = {
    "invalidate": lambda devices, device: devices.invalidate(
        device.app_id, device.id, InvalidationReason.UNINSTALLED, NOW + 1
    ),
    "delete": lambda devices, device: devices.delete(device.app_id, device.id, NOW + 1),
    "another user": lambda devices, device: devices.update(
        device.app_id, device.id, DeviceDetails(user_id="bo"), NOW + 1
    ),
    "taken over": take_over,
}


@pytest.mark.parametrize("end", ENDING.values(), ids=ENDING)
async def test_a_device_that_is_gone_fails_its_deliveries(
    devices: Devices, sent: Sent, end: Any
) -> None:
    device, other = await registered(devices, sent), await registered(devices, sent)
    (alone,) = await sent.send(device.id)
    shared, _ = await sent.send(device.id, other.id)
    (of_other,) = await sent.send(other.id)
    await end(devices, device)
    assert await sent.state(alone) == FAILED
    assert await sent.state(shared) == await sent.state(of_other) == SENT


async def test_what_was_stored_for_an_invalid_device_fails_when_it_registers_again(
    devices: Devices, sent: Sent
) -> None:
    device = await registered(devices, sent)
    await devices.invalidate(sent.app_id, device.id, InvalidationReason.REVOKED, NOW)
    (late,) = await sent.send(device.id)
    await devices.refresh(device, is_by_app=True)
    assert await sent.state(late) == FAILED


def test_the_id_of_a_message_is_always_the_same() -> None:
    assert make_message_id("n", "d") == make_message_id("n", "d")
    ids = {make_message_id(*each) for each in (("n", "d"), ("n", "e"), ("m", "d"))}
    assert len(ids) == 3
