"""The contract of `PushEndpoints`."""

import asyncio

from clarion.idempotency.model import StoredResponse
from clarion.push.model import Device, DeviceDetails, InvalidationReason
from clarion.push.sql.devices import Devices
from clarion.push.webpush.model import PushEndpoint, StoredEndpoint
from clarion.push.webpush.sql import ENDPOINTS_LIMIT, PushEndpoints
from tests.factories import NOW, make_device, make_once, make_push_endpoint


async def register(devices: Devices, user_id: str | None = "ana") -> Device:
    device = make_device(details=DeviceDetails(user_id=user_id))
    assert await devices.add(device)
    return device


async def list_all(endpoints: PushEndpoints, device: Device) -> tuple[PushEndpoint, ...]:
    user_id = device.details.user_id or ""
    page = await endpoints.list(device.app_id, device.id, user_id, after=None, limit=100)
    assert page.next is None
    return page.items


async def test_an_endpoint_is_found_as_it_was_added(
    devices: Devices, endpoints: PushEndpoints
) -> None:
    for device in (await register(devices), await register(devices, None)):
        endpoint = make_push_endpoint(device, vapid_key="B" * 87, label="chat 💬")
        assert await endpoints.add(endpoint) is True
        found = await endpoints.find(endpoint.capability_hash)
        assert found == StoredEndpoint(endpoint, device.token_hash)
        assert await list_all(endpoints, device) == (endpoint,)
    assert await endpoints.find(b"\x00" * 32) is None


async def test_they_are_listed_in_pages(devices: Devices, endpoints: PushEndpoints) -> None:
    device = await register(devices)
    made = [make_push_endpoint(device) for _ in range(3)]
    for endpoint in made:
        await endpoints.add(endpoint)
    first = await endpoints.list("app", device.id, "ana", after=None, limit=2)
    assert (list(first.items), first.next) == (made[:2], made[1].id)
    rest = await endpoints.list("app", device.id, "ana", after=first.next, limit=2)
    assert (list(rest.items), rest.next) == (made[2:], None)


async def test_a_device_has_no_more_than_the_limit(
    devices: Devices, endpoints: PushEndpoints
) -> None:
    device, other = await register(devices), await register(devices)
    many = [make_push_endpoint(device) for _ in range(ENDPOINTS_LIMIT + 5)]
    # Also if they come in one batch.
    added = await asyncio.gather(*map(endpoints.add, many))
    assert added.count(True) == ENDPOINTS_LIMIT
    assert len(await list_all(endpoints, device)) == ENDPOINTS_LIMIT
    assert await endpoints.add(make_push_endpoint(other)) is True


async def test_only_the_device_of_the_app_has_its_endpoint(
    devices: Devices, endpoints: PushEndpoints
) -> None:
    device, other = await register(devices), await register(devices)
    endpoint = make_push_endpoint(device)
    await endpoints.add(endpoint)
    assert await endpoints.delete("other app", device.id, endpoint.id) is None
    assert await endpoints.delete("app", other.id, endpoint.id) is None
    page = await endpoints.list("other app", device.id, "ana", after=None, limit=10)
    assert page.items == ()
    assert await endpoints.delete("app", device.id, endpoint.id) == endpoint
    assert await endpoints.delete("app", device.id, endpoint.id) is None
    assert await endpoints.find(endpoint.capability_hash) is None


async def test_endpoints_are_deleted_with_their_device(
    devices: Devices, endpoints: PushEndpoints
) -> None:
    device = await register(devices)
    endpoint = make_push_endpoint(device)
    await endpoints.add(endpoint)
    await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
    assert await endpoints.find(endpoint.capability_hash) is not None
    await devices.delete("app", device.id, NOW)
    assert await endpoints.find(endpoint.capability_hash) is None


async def test_an_endpoint_that_was_added_to_a_deleted_device_has_no_token(
    endpoints: PushEndpoints,
) -> None:
    endpoint = make_push_endpoint(make_device())
    await endpoints.add(endpoint)
    assert await endpoints.find(endpoint.capability_hash) == StoredEndpoint(endpoint, None)


async def test_who_takes_a_device_over_does_not_see_the_endpoints_of_the_user_before(
    devices: Devices, endpoints: PushEndpoints
) -> None:
    device = await register(devices, "ana")
    old = make_push_endpoint(device)
    await endpoints.add(old)
    changed = await devices.update("app", device.id, DeviceDetails(user_id="bo"), NOW)
    assert changed is not None
    assert await list_all(endpoints, changed) == ()
    new = make_push_endpoint(changed)
    await endpoints.add(new)
    assert await list_all(endpoints, changed) == (new,)
    assert await endpoints.find(old.capability_hash) is None


async def test_a_repeated_request_gets_the_first_response(
    devices: Devices, endpoints: PushEndpoints
) -> None:
    device = await register(devices)
    once = make_once("app")
    assert await endpoints.add(make_push_endpoint(device), once) is True
    again = await endpoints.add(make_push_endpoint(device), make_once("app"))
    assert again == StoredResponse(once.answer)
    assert len(await list_all(endpoints, device)) == 1
