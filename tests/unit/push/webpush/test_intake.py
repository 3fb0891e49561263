"""Messages to endpoints: how many a minute, and what becomes of one whose endpoint ends."""

import pytest

from clarion.access.vault import Vault
from clarion.errors import EndpointGone, NotFound, TooManyRequests, Unauthenticated
from clarion.nodes.memory import MemoryLimits
from clarion.push.model import DeviceDetails, InvalidationReason, MessageReason, MessageStatus
from clarion.push.registry import Registry
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlHistory
from clarion.push.webpush.intake import WebPushIntake
from clarion.push.webpush.model import EndpointOfDevice
from clarion.push.webpush.registry import EndpointRegistry
from clarion.push.webpush.signatures import VapidSignatures
from clarion.push.webpush.sql import PushEndpoints
from tests.factories import MINUTE
from tests.unit.push.phone import Gateway

URL = "https://push.example"
FAILED = (MessageStatus.FAILED, MessageReason.UNREGISTERED)
PER_MINUTE = 3


class Service:
    """The intake of messages, and one device."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        engine, self.clock = self.gateway.store.gated, self.gateway.clock
        self.devices = Registry(
            Devices(engine), self.gateway.connections, self.clock, Vault(bytes(32))
        )
        self.endpoints = EndpointRegistry(PushEndpoints(engine), self.devices, self.clock, URL)
        self.intake = WebPushIntake(
            endpoints=self.endpoints,
            dispatch=self.gateway.dispatch,
            history=SqlHistory(self.gateway.store.open),
            signatures=VapidSignatures(URL),
            limits=MemoryLimits(self.clock),
            clock=self.clock,
            per_minute=PER_MINUTE,
        )

    async def make_endpoint(self, vapid_key: str | None = None) -> EndpointOfDevice:
        endpoint, url = self.endpoints.propose(self.gateway.device, vapid_key=vapid_key, label=None)
        await self.endpoints.add(endpoint)
        return await self.endpoints.find(url.removeprefix(f"{URL}/push/"))

    async def push(self, to: EndpointOfDevice) -> str:
        message_id, _ = await self.intake.push(to, {"ttl": "60"}, b"text")
        return message_id

    async def states(self) -> set[tuple[MessageStatus, MessageReason | None]]:
        history = SqlHistory(self.gateway.store.open)
        device_id = self.gateway.device.id
        page = await history.list("app", device_id=device_id, after=None, limit=100)
        return {(each.status, each.reason) for each in page.items}


@pytest.fixture
async def service() -> Service:
    service = Service()
    await service.devices.add(service.gateway.device)
    return service


async def test_a_connected_device_gets_it(service: Service) -> None:
    to = await service.make_endpoint()
    phone = await service.gateway.connect()
    message_id = await service.push(to)
    assert phone.ids == [message_id]


async def test_nothing_is_accepted_that_is_not_stored(service: Service) -> None:
    to = await service.make_endpoint()
    service.gateway.gates.failures = [True]
    with pytest.raises(Exception, match="did not answer"):
        await service.push(to)


async def test_an_endpoint_has_its_limit_and_a_device_has_a_larger_one(service: Service) -> None:
    many = [await service.make_endpoint() for _ in range(6)]
    for to in many[:5]:
        for _ in range(PER_MINUTE):
            await service.push(to)
        with pytest.raises(TooManyRequests) as raised:
            await service.push(to)
        assert 0 < raised.value.retry_after_s <= 60
    with pytest.raises(TooManyRequests):
        await service.push(many[5])
    service.clock.advance(MINUTE)
    await service.push(many[5])


async def test_what_is_stored_after_its_endpoint_was_deleted_fails(service: Service) -> None:
    to = await service.make_endpoint()
    await service.endpoints.delete("app", to.device.id, to.endpoint.id)
    with pytest.raises(NotFound):
        await service.push(to)
    assert await service.states() == {FAILED}


async def test_what_is_stored_after_its_device_was_revoked_fails(service: Service) -> None:
    to = await service.make_endpoint()
    await service.devices.invalidate("app", to.device.id, InvalidationReason.REVOKED)
    with pytest.raises(EndpointGone):
        await service.push(to)
    assert await service.states() == {FAILED}


async def test_what_is_stored_after_its_device_got_another_user_fails(service: Service) -> None:
    to = await service.make_endpoint()
    await service.devices.update("app", to.device.id, DeviceDetails(user_id="bo"))
    with pytest.raises(EndpointGone):
        await service.push(to)
    assert await service.states() == {FAILED}


async def test_a_change_that_ends_nothing_fails_nothing(service: Service) -> None:
    to = await service.make_endpoint()
    await service.devices.update("app", to.device.id, DeviceDetails(label="new"))
    message_id = await service.push(to)
    assert await service.gateway.state_of(message_id) == (
        MessageStatus.QUEUED,
        MessageReason.DEVICE_OFFLINE,
    )


async def test_a_restricted_endpoint_stores_nothing_that_is_not_signed(service: Service) -> None:
    to = await service.make_endpoint("B" * 87)
    with pytest.raises(Unauthenticated):
        await service.push(to)
    assert await service.states() == set()
