"""Pushes to devices: which are accepted, how many a minute, and what becomes of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clarion.access.vault import Vault
from clarion.nodes.memory import MemoryLimits
from clarion.push.apns.intake import PushIntake
from clarion.push.apns.provider_tokens import Provider
from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.model import InvalidationReason, MessageReason, MessageStatus
from clarion.push.registry import Registry, hash_token
from clarion.push.sql.devices import Devices
from tests.factories import MINUTE, NOW, make_app, make_device
from tests.replacing import replace
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway

TOKEN = "ab" * 32
BODY = b'{"aps":{}}'
ID = "eabeae54-14a8-11e5-b60b-1697f925ec7b"


class Apns:
    """The intake of pushes, and one device."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        self.app = make_app(id="app")
        self.provider = Provider(self.app, "KEY", self.app.team_id, NOW)
        self.device = self.gateway.device = make_device(token_hash=hash_token(TOKEN))
        self.devices = Devices(self.gateway.store.open)
        self.registry = Registry(
            Devices(self.gateway.store.gated),
            self.gateway.connections,
            self.gateway.clock,
            Vault(b"k" * 32),
        )
        self.intake = PushIntake(
            registry=self.registry,
            dispatch=self.gateway.dispatch,
            limits=MemoryLimits(self.gateway.clock),
            clock=self.gateway.clock,
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

    async def state(self) -> tuple[MessageStatus, MessageReason | None]:
        return await self.gateway.state_of(ID)


@pytest.fixture
async def apns() -> Apns:
    apns = Apns()
    await apns.devices.add(apns.device)
    return apns


async def test_a_push_is_stored_under_the_id_that_was_given(apns: Apns) -> None:
    assert await apns.push() == ID
    assert await apns.state() == (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def test_a_push_without_an_id_gets_one(apns: Apns) -> None:
    raw = {b"apns-topic": apns.app.bundle_id.encode()}
    given = await apns.intake.push(apns.provider, raw, TOKEN, BODY)
    assert await apns.gateway.stored() == [given]


async def test_an_unknown_token_is_a_bad_token(apns: Apns) -> None:
    assert (await apns.refusal(token="cd" * 32)).reason is Reason.BAD_DEVICE_TOKEN


async def test_a_device_of_another_app_is_not_for_this_topic(apns: Apns) -> None:
    await apns.devices.delete("app", apns.device.id, NOW)
    await apns.devices.add(replace(apns.device, app_id="other"))
    assert (await apns.refusal()).reason is Reason.BAD_DEVICE_TOKEN


async def test_the_topic_of_another_app_is_not_allowed(apns: Apns) -> None:
    assert (await apns.refusal(topic="com.example.other")).reason is Reason.TOPIC_DISALLOWED


@pytest.mark.parametrize("why", InvalidationReason)
async def test_a_push_to_an_invalid_device_says_since_when(
    apns: Apns, why: InvalidationReason
) -> None:
    await apns.registry.invalidate("app", apns.device.id, why)
    refused = await apns.refusal()
    is_expired = why is InvalidationReason.TOKEN_EXPIRED
    assert refused.reason is (Reason.EXPIRED_TOKEN if is_expired else Reason.UNREGISTERED)
    assert refused.timestamp == NOW


async def test_a_device_takes_so_many_a_minute(apns: Apns) -> None:
    for _ in range(3):
        await apns.push()
    refused = await apns.refusal()
    assert (refused.reason, refused.retry_after_s) == (Reason.TOO_MANY_REQUESTS, 60)
    apns.gateway.clock.advance(MINUTE)
    assert await apns.push() == ID


@pytest.mark.parametrize("step", [60 * MINUTE, -60 * MINUTE])
async def test_a_device_takes_no_more_because_the_clock_is_set(apns: Apns, step: int) -> None:
    for _ in range(3):
        await apns.push()
    apns.gateway.clock.step(step)
    refused = await apns.refusal()
    assert (refused.reason, refused.retry_after_s) == (Reason.TOO_MANY_REQUESTS, 60)
    apns.gateway.clock.advance(MINUTE)
    assert await apns.push() == ID


async def test_an_app_may_send_so_many_a_minute(apns: Apns) -> None:
    others = [make_device(token_hash=hash_token(f"{n:064x}")) for n in range(6)]
    for device in others:
        await apns.devices.add(device)
    for n in range(5):
        await apns.push(token=f"{n:064x}")
    assert (await apns.refusal(token=f"{5:064x}")).reason is Reason.TOO_MANY_REQUESTS


Change = Callable[[Apns], Awaitable[object]]


async def replace_device(apns: Apns) -> None:
    await apns.registry.delete("app", apns.device.id)
    await apns.registry.add(replace(apns.device, id="another"))


async def push_during(apns: Apns, change: Change) -> str:
    """Push, and let the change happen when the device is found and the message not stored yet."""
    await apns.registry.find("app", apns.device.token_hash)
    apns.gateway.gates.are_open = False
    pushing = asyncio.ensure_future(apns.push())
    await settle()
    changing = asyncio.ensure_future(change(apns))
    while not changing.done():
        await apns.gateway.gates.let_pass(1)
    assert await apns.gateway.stored() == []
    await apns.gateway.gates.let_all_pass()
    return await pushing


@pytest.mark.parametrize(
    "invalidate",
    [
        lambda apns: apns.registry.invalidate("app", apns.device.id, InvalidationReason.REVOKED),
        lambda apns: apns.registry.delete("app", apns.device.id),
        replace_device,
    ],
)
async def test_a_message_stored_just_after_the_device_was_invalidated_does_not_wait(
    apns: Apns, invalidate: Change
) -> None:
    assert await push_during(apns, invalidate) == ID
    assert await apns.state() == (MessageStatus.FAILED, MessageReason.UNREGISTERED)


async def test_a_message_stored_just_after_another_change_waits(apns: Apns) -> None:
    assert await push_during(apns, lambda apns: apns.registry.renew_secret(apns.device)) == ID
    assert await apns.state() == (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def test_a_push_looks_its_device_up_once(apns: Apns) -> None:
    await apns.push()
    assert (apns.registry.hits, apns.registry.misses) == (0, 1)
    assert apns.gateway.store.reads == 1
