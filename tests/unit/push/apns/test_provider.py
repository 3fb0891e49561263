"""A push to a device: which devices take it, how many, and what becomes of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from clarion.nodes.memory import MemoryLimits
from clarion.push.apns.intake import PushIntake
from clarion.push.apns.provider_tokens import Provider, ProviderTokens
from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.apns.request import hash_token
from clarion.push.model import InvalidationReason, MessageReason, MessageStatus
from clarion.push.registry import Registry
from tests.factories import MINUTE, NOW, make_app, make_device
from tests.unit.push.memory import MemoryApps, MemoryDevices, settle
from tests.unit.push.phone import House

TOKEN = "ab" * 32
BODY = b'{"aps":{}}'
ID = "eabeae54-14a8-11e5-b60b-1697f925ec7b"


class Door:
    """The provider's door, and one device behind it."""

    def __init__(self) -> None:
        self.house = House()
        self.app = make_app(id="app")
        self.provider = Provider(self.app, "KEY", self.app.team_id, NOW)
        self.device = make_device(token_hash=hash_token(TOKEN))
        self.devices = MemoryDevices(self.house.gates, {self.device.id: self.device})
        self.registry = Registry(self.devices, self.house.clock)
        self.intake = PushIntake(
            tokens=ProviderTokens(MemoryApps()),
            registry=self.registry,
            dispatch=self.house.dispatch,
            limits=MemoryLimits(),
            clock=self.house.clock,
            device_per_minute=3,
            app_per_minute=5,
        )

    async def push(self, *, token: str = TOKEN, **headers: str) -> str:
        given = {f"apns-{name}": value for name, value in headers.items()}
        given = {"apns-topic": self.app.bundle_id, "apns-id": ID} | given
        raw = {name.encode(): value.encode() for name, value in given.items()}
        return await self.intake.push(self.provider, raw, token, BODY)

    async def refusal(self, **changes: Any) -> Rejected:
        with pytest.raises(Rejected) as raised:
            await self.push(**changes)
        return raised.value

    def state(self) -> tuple[MessageStatus, MessageReason | None]:
        ((_, status, reason),) = self.house.messages.entries.values()
        return status, reason


@pytest.fixture
def door() -> Door:
    return Door()


async def test_a_push_is_stored_under_the_id_that_was_given(door: Door) -> None:
    assert await door.push() == ID
    assert door.state() == (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def test_a_push_without_an_id_gets_one(door: Door) -> None:
    raw = {b"apns-topic": door.app.bundle_id.encode()}
    given = await door.intake.push(door.provider, raw, TOKEN, BODY)
    assert [message_id for _, message_id in door.house.messages.entries] == [given]


async def test_an_unknown_token_is_a_bad_token(door: Door) -> None:
    assert (await door.refusal(token="cd" * 32)).reason is Reason.BAD_DEVICE_TOKEN


async def test_a_device_of_another_app_is_not_for_this_topic(door: Door) -> None:
    door.devices.devices = {door.device.id: replace(door.device, app_id="other")}
    assert (await door.refusal()).reason is Reason.DEVICE_TOKEN_NOT_FOR_TOPIC


async def test_the_topic_of_another_app_is_not_allowed(door: Door) -> None:
    assert (await door.refusal(topic="com.example.other")).reason is Reason.TOPIC_DISALLOWED


@pytest.mark.parametrize("end", InvalidationReason)
async def test_an_ended_device_is_gone_since_then(door: Door, end: InvalidationReason) -> None:
    await door.registry.invalidate("app", door.device.id, end)
    refused = await door.refusal()
    is_expired = end is InvalidationReason.TOKEN_EXPIRED
    assert refused.reason is (Reason.EXPIRED_TOKEN if is_expired else Reason.UNREGISTERED)
    assert refused.timestamp == NOW


async def test_a_device_takes_so_many_a_minute(door: Door) -> None:
    for _ in range(3):
        await door.push()
    refused = await door.refusal()
    assert (refused.reason, refused.retry_after_s) == (Reason.TOO_MANY_REQUESTS, 60)
    door.house.clock.advance(MINUTE)
    assert await door.push() == ID


async def test_an_app_may_send_so_many_a_minute(door: Door) -> None:
    others = [make_device(token_hash=hash_token(f"{n:064x}")) for n in range(6)]
    door.devices.devices |= {device.id: device for device in others}
    for n in range(5):
        await door.push(token=f"{n:064x}")
    assert (await door.refusal(token=f"{5:064x}")).reason is Reason.TOO_MANY_REQUESTS


Change = Callable[[Door], Awaitable[object]]


async def replace_device(door: Door) -> None:
    await door.registry.delete("app", door.device.id)
    await door.registry.add(replace(door.device, id="another"))


async def push_during(door: Door, change: Change) -> str:
    """Push, and let the change happen when the device is found and the message not stored yet."""
    await door.registry.find(door.device.token_hash)
    door.house.gates.are_open = False
    pushing = asyncio.ensure_future(door.push())
    await settle()
    changing = asyncio.ensure_future(change(door))
    while not changing.done():
        await door.house.gates.let_pass(1)
    assert not door.house.messages.entries
    await door.house.gates.let_all_pass()
    return await pushing


@pytest.mark.parametrize(
    "end",
    [
        lambda door: door.registry.invalidate("app", door.device.id, InvalidationReason.REVOKED),
        lambda door: door.registry.delete("app", door.device.id),
        replace_device,
    ],
)
async def test_what_is_stored_just_after_the_device_s_end_does_not_wait(
    door: Door, end: Change
) -> None:
    assert await push_during(door, end) == ID
    assert door.state() == (MessageStatus.FAILED, MessageReason.UNREGISTERED)


async def test_what_is_stored_just_after_another_change_waits(door: Door) -> None:
    assert await push_during(door, lambda door: door.registry.renew_secret(door.device)) == ID
    assert door.state() == (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def test_a_push_looks_its_device_up_once(door: Door) -> None:
    await door.push()
    assert (door.registry.hits, door.registry.misses, door.devices.asked) == (0, 1, 1)
