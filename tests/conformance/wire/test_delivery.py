"""What an answer promises: expiration, repeats, and tokens that end and begin again."""

import asyncio
import time
import uuid

import pytest

from tests.conformance.clients.http2 import Http2, Request
from tests.conformance.device import Api, Device, Socket, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.conformance.wire.prepared import broadcast, create, push

HOUR_S = 3600
ONCE = {"zero": "0", "past": "1"}


def later(seconds: int) -> str:
    return str(int(time.time()) + seconds)


async def accept(client: Http2, request: Request) -> str:
    """Have a push accepted and return its id."""
    answer = await client.ask(request)
    assert answer.refusal == (200, None)
    return answer.headers["apns-id"].decode()


async def arrived_before(socket: Socket, client: Http2, last: Request) -> list[str]:
    """What a device got up to a last message, pushed now; behind it nothing can be under way."""
    return await socket.take_until(await accept(client, last))


@pytest.fixture
def good(provider: Provider, device: Device) -> Request:
    return push(provider, device.token)


@pytest.mark.parametrize("given", [*ONCE.values(), "future", None])
async def test_who_is_connected_gets_it_whatever_the_expiration(
    server: ConformanceServer, client: Http2, device: Device, good: Request, given: str | None
) -> None:
    when = later(HOUR_S) if given == "future" else given
    async with listening(server, device) as socket:
        wanted = await accept(client, good if when is None else good.but("apns-expiration", when))
        assert (await socket.take())["id"] == wanted


@pytest.mark.parametrize("given", ["future", None])
async def test_who_is_away_gets_it_later(
    server: ConformanceServer, client: Http2, device: Device, good: Request, given: str | None
) -> None:
    asked = good.but("apns-expiration", later(HOUR_S)) if given else good
    wanted = await accept(client, asked)
    async with listening(server, device) as socket:
        assert socket.pending == 1
        assert (await socket.take())["id"] == wanted


@pytest.mark.parametrize("given", ONCE.values(), ids=ONCE)
async def test_who_is_away_never_gets_what_is_tried_once(
    server: ConformanceServer, api: Api, client: Http2, device: Device, good: Request, *, given: str
) -> None:
    lost = await accept(client, good.but("apns-expiration", given))
    assert await api.status_of(device, lost) == ("expired", "not_stored")
    async with listening(server, device) as socket:
        assert await arrived_before(socket, client, good) == []


async def test_what_has_expired_meanwhile_does_not_arrive(
    server: ConformanceServer, api: Api, client: Http2, device: Device, good: Request
) -> None:
    expires = int(time.time()) + 2
    late = await accept(client, good.but("apns-expiration", str(expires)))
    assert await api.status_of(device, late) == ("queued", "device_offline")
    await asyncio.sleep(max(0, expires - time.time()))  # this instant is what the test is about
    async with listening(server, device) as socket:
        assert await arrived_before(socket, client, good) == []


async def test_a_broadcast_tried_once_is_not_kept_even_by_a_channel_that_keeps(
    server: ConformanceServer, api: Api, client: Http2, provider: Provider, device: Device
) -> None:
    identity = ("authorization", f"bearer {provider.token()}")
    made = await client.ask(create(provider, 1).but(*identity))
    channel_id = made.headers["apns-channel-id"].decode()
    await api.subscribe(device, channel_id)
    news = broadcast(provider, channel_id).but(*identity)
    kept = str(uuid.uuid4())
    first = news.but("apns-expiration", later(HOUR_S)).but("apns-request-id", kept)
    assert [(await client.ask(each)).status for each in (first, news)] == [200, 200]
    last = push(provider, device.token).but(*identity).but("apns-priority", "1")
    wanted = await accept(client, last)
    async with listening(server, device) as socket:
        assert await socket.take_until(wanted) == [kept]


async def test_the_same_id_again_is_the_same_message(
    server: ConformanceServer, client: Http2, device: Device, good: Request
) -> None:
    wanted = str(uuid.uuid4())
    once = good.but("apns-id", wanted)
    async with listening(server, device) as socket:
        answers = [await client.ask(once) for _ in range(2)]
        assert (await socket.take())["id"] == wanted
        answers += [await client.ask(once), *await client.ask_all([once] * 20)]
        assert {(a.status, a.headers["apns-id"]) for a in answers} == {(200, wanted.encode())}
        assert await arrived_before(socket, client, good) == []


async def test_the_same_id_to_two_devices_is_two_messages(
    server: ConformanceServer, api: Api, client: Http2, device: Device, good: Request
) -> None:
    other, wanted = await api.register(), str(uuid.uuid4())
    asked = good.but("apns-id", wanted)
    for each in (device, other):
        request = Request(path=f"/3/device/{each.token}", headers=asked.headers, body=good.body)
        assert await accept(client, request) == wanted
        async with listening(server, each) as socket:
            assert (await socket.take())["id"] == wanted


async def test_a_token_ended_while_pushes_are_under_way_is_gone_at_once(
    api: Api, client: Http2, device: Device, good: Request
) -> None:
    async with asyncio.TaskGroup() as group:
        under_way = group.create_task(client.ask_all([good] * 300))
        await api.invalidate(device)
        behind = [await client.ask(good) for _ in range(10)]
    assert {answer.refusal for answer in behind} == {(410, "Unregistered")}
    assert {answer.status for answer in under_way.result()} <= {200, 410}


async def test_a_token_that_is_registered_again_lives_at_once(
    server: ConformanceServer, api: Api, client: Http2, device: Device, good: Request
) -> None:
    await api.invalidate(device)
    assert (await client.ask(good)).status == 410
    again = await api.register(device.token)
    assert again.id == device.id
    async with listening(server, device) as socket:
        wanted = await accept(client, good)
        assert (await socket.take())["id"] == wanted


async def test_a_token_that_was_unknown_is_known_as_soon_as_it_is_registered(
    api: Api, client: Http2, provider: Provider
) -> None:
    token = uuid.uuid4().hex * 2
    good = push(provider, token)
    assert (await client.ask(good)).refusal == (400, "BadDeviceToken")
    await api.register(token)
    assert (await client.ask(good)).status == 200


async def test_a_deleted_device_is_unknown_at_once(
    api: Api, client: Http2, device: Device, good: Request
) -> None:
    assert (await client.ask(good)).status == 200
    assert (await api.ask("DELETE", f"/v1/devices/{device.id}")).status == 204
    assert (await client.ask(good)).refusal == (400, "BadDeviceToken")


async def test_each_app_has_tokens_of_its_own(other_api: Api, device: Device) -> None:
    wanted = {"platform": "clarion", "token": device.token}
    answer = await other_api.ask("POST", "/v1/devices", wanted)
    assert (answer.status, answer.json["is_new"]) == (201, True)
    assert answer.json["device_id"] != device.id


async def test_the_higher_priority_arrives_first(
    server: ConformanceServer, client: Http2, device: Device, good: Request
) -> None:
    ids = [await accept(client, good.but("apns-priority", given)) for given in ("1", "5", "10")]
    async with listening(server, device) as socket:
        assert [frame["id"] for frame in await socket.take_many(3)] == ids[::-1]
