"""The registry of endpoints: what is cached, for how long, and what a change does to it."""

import asyncio

import pytest

from clarion.access.vault import Vault
from clarion.errors import Conflict, EndpointGone, NotFound
from clarion.nodes.bus import NoBus
from clarion.push.connections import Connections
from clarion.push.model import Device, DeviceDetails, InvalidationReason
from clarion.push.registry import Registry
from clarion.push.sql.devices import Devices
from clarion.push.webpush.registry import DISCONNECTED_MS, KNOWN_MS, EndpointRegistry
from clarion.push.webpush.sql import PushEndpoints
from tests.factories import FixedClock, make_device
from tests.recorded_bus import RecordedHub
from tests.unit.push.gates import GatedStore

URL = "https://push.example"


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
def devices(store: GatedStore, clock: FixedClock) -> Registry:
    return Registry(Devices(store.open), Connections(), clock, Vault(bytes(32)))


@pytest.fixture
def endpoints(store: GatedStore, devices: Registry, clock: FixedClock) -> EndpointRegistry:
    return EndpointRegistry(PushEndpoints(store.gated), devices, clock, URL)


@pytest.fixture
def other_node(store: GatedStore, clock: FixedClock) -> EndpointRegistry:
    devices = Registry(Devices(store.open), Connections(), clock, Vault(bytes(32)))
    return EndpointRegistry(PushEndpoints(store.open), devices, clock, URL)


@pytest.fixture
async def device(devices: Registry) -> Device:
    device = make_device(details=DeviceDetails(user_id="ana"))
    await devices.add(device)
    return device


async def create(endpoints: EndpointRegistry, device: Device) -> tuple[str, str]:
    """Return the id of a new endpoint and the secret part of its URL."""
    endpoint, url = endpoints.propose(device, vapid_key=None, label=None)
    await endpoints.add(endpoint)
    return endpoint.id, url.removeprefix(f"{URL}/push/")


async def test_an_endpoint_is_read_once_in_a_while(
    endpoints: EndpointRegistry, store: GatedStore, device: Device, clock: FixedClock
) -> None:
    endpoint_id, capability = await create(endpoints, device)
    for _ in range(3):
        found = await endpoints.find(capability)
        assert (found.endpoint.id, found.device.id) == (endpoint_id, device.id)
    assert store.reads == 1
    clock.advance(KNOWN_MS)
    await endpoints.find(capability)
    assert store.reads == 2


async def test_what_is_unknown_is_cached_apart(
    endpoints: EndpointRegistry, store: GatedStore, device: Device
) -> None:
    _, capability = await create(endpoints, device)
    await endpoints.find(capability)
    for guess in ("a", "a", "a", "é", "a/b", "", "\U0001f600"):
        with pytest.raises(NotFound):
            await endpoints.find(guess)
    await endpoints.find(capability)
    assert store.reads == 1 + 5


async def test_a_secret_has_at_least_160_bits_and_is_not_stored(
    endpoints: EndpointRegistry, device: Device
) -> None:
    made = [await create(endpoints, device) for _ in range(2)]
    assert len({capability[:8] for _, capability in made}) == 2
    assert all(len(capability) == 32 for _, capability in made)
    found = await endpoints.find(made[0][1])
    assert made[0][1] not in repr(found.endpoint)


async def test_a_deleted_endpoint_is_unknown_at_once(
    endpoints: EndpointRegistry, device: Device
) -> None:
    endpoint_id, capability = await create(endpoints, device)
    found = await endpoints.find(capability)
    assert endpoints.is_current(found)
    await endpoints.delete(device.app_id, device.id, endpoint_id)
    assert not endpoints.is_current(found)
    with pytest.raises(NotFound):
        await endpoints.find(capability)
    with pytest.raises(NotFound):
        await endpoints.delete(device.app_id, device.id, endpoint_id)


async def test_another_node_sees_it_within_a_minute(
    endpoints: EndpointRegistry, other_node: EndpointRegistry, device: Device, clock: FixedClock
) -> None:
    endpoint_id, capability = await create(endpoints, device)
    await other_node.find(capability)
    await endpoints.delete(device.app_id, device.id, endpoint_id)
    clock.advance(KNOWN_MS)
    with pytest.raises(NotFound):
        await other_node.find(capability)


async def test_what_was_read_before_a_deletion_is_not_cached(
    endpoints: EndpointRegistry, store: GatedStore, device: Device
) -> None:
    endpoint_id, capability = await create(endpoints, device)
    store.gates.are_open = False
    finding = asyncio.create_task(endpoints.find(capability))
    await store.gates.let_pass()  # it has read, and not returned yet
    deleting = asyncio.create_task(endpoints.delete(device.app_id, device.id, endpoint_id))
    for _ in range(2):
        await store.gates.let_pass(1)
    await deleting
    await store.gates.let_all_pass()
    with pytest.raises(NotFound):
        await finding


async def test_an_endpoint_ends_with_its_device(
    endpoints: EndpointRegistry, devices: Registry, device: Device, clock: FixedClock
) -> None:
    _, capability = await create(endpoints, device)
    found = await endpoints.find(capability)
    await devices.invalidate(device.app_id, device.id, InvalidationReason.REVOKED)
    assert not endpoints.is_current(found)
    with pytest.raises(EndpointGone):
        await endpoints.find(capability)
    await devices.delete(device.app_id, device.id)
    with pytest.raises(EndpointGone):
        await endpoints.find(capability)
    clock.advance(KNOWN_MS)
    with pytest.raises(NotFound):
        await endpoints.find(capability)


async def test_a_device_that_is_registered_again_has_its_endpoints_again(
    endpoints: EndpointRegistry, devices: Registry, device: Device
) -> None:
    _, capability = await create(endpoints, device)
    await devices.invalidate(device.app_id, device.id, InvalidationReason.UNINSTALLED)
    await devices.refresh(device, is_by_app=True)
    assert (await endpoints.find(capability)).device.is_valid


async def test_an_endpoint_ends_when_another_user_gets_the_device(
    endpoints: EndpointRegistry, devices: Registry, device: Device
) -> None:
    _, capability = await create(endpoints, device)
    await endpoints.find(capability)
    await devices.update(device.app_id, device.id, DeviceDetails(user_id="bo"))
    with pytest.raises(EndpointGone):
        await endpoints.find(capability)


async def test_a_device_with_too_many_endpoints_gets_no_more(
    endpoints: EndpointRegistry, device: Device
) -> None:
    for _ in range(100):
        await create(endpoints, device)
    with pytest.raises(Conflict, match="100 endpoints"):
        await create(endpoints, device)


async def test_an_endpoint_of_a_deleted_app_is_gone_at_once(
    endpoints: EndpointRegistry, device: Device
) -> None:
    _, capability = await create(endpoints, device)
    assert (await endpoints.find(capability)).device.id == device.id
    endpoints._deleted_apps = {device.app_id}
    with pytest.raises(EndpointGone):
        await endpoints.find(capability)


async def test_the_other_nodes_forget_a_deleted_endpoint_when_the_message_arrives(
    endpoints: EndpointRegistry, other_node: EndpointRegistry, device: Device
) -> None:
    hub = RecordedHub()
    for each in (endpoints, other_node):
        each.forget.join(hub.join())
    endpoint_id, capability = await create(endpoints, device)
    assert await other_node.find(capability)
    await endpoints.delete(device.app_id, device.id, endpoint_id)
    await asyncio.sleep(0)
    with pytest.raises(NotFound):
        await other_node.find(capability)


async def test_while_the_bus_is_disconnected_endpoints_are_known_for_seconds(
    endpoints: EndpointRegistry, other_node: EndpointRegistry, device: Device, clock: FixedClock
) -> None:
    endpoints.forget.join(NoBus(is_alone=False))
    endpoint_id, capability = await create(endpoints, device)
    assert await endpoints.find(capability)
    await other_node.delete(device.app_id, device.id, endpoint_id)
    clock.advance(DISCONNECTED_MS - 1)
    assert await endpoints.find(capability)
    clock.advance(1)
    with pytest.raises(NotFound):
        await endpoints.find(capability)


async def test_no_endpoint_is_cached_over_a_gap(
    endpoints: EndpointRegistry, other_node: EndpointRegistry, device: Device
) -> None:
    bus = RecordedHub().join()
    endpoints.forget.join(bus)
    endpoint_id, capability = await create(endpoints, device)
    assert await endpoints.find(capability)
    await other_node.delete(device.app_id, device.id, endpoint_id)
    bus.miss()
    with pytest.raises(NotFound):
        await endpoints.find(capability)
