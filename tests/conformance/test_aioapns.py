"""aioapns, unmodified, against a running server: TLS with the development CA, no ALPN."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aioapns import PushType

from tests.conformance.clients.aioapns_client import MESSAGE, Client, calling
from tests.conformance.device import Api, bodies, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer

PARALLEL = 1_000


@pytest.fixture
async def client(server: ConformanceServer, provider: Provider) -> AsyncIterator[Client]:
    async with calling(server, provider) as made:
        yield made


async def test_what_is_pushed_arrives(server: ConformanceServer, api: Api, client: Client) -> None:
    device = await api.register()
    async with listening(server, device) as socket:
        wanted = str(uuid.uuid4())
        result = await client.push(device.token, notification_id=wanted)
        taken = await socket.take()
    assert result.is_successful
    assert result.notification_id == taken["id"] == wanted
    assert taken["payload"] == MESSAGE


async def test_priority_collapse_id_and_expiration_are_kept(
    server: ConformanceServer, api: Api, client: Client
) -> None:
    device = await api.register()
    result = await client.push(
        device.token,
        priority=5,
        collapse_key="Stand ½",
        time_to_live=3600,
        push_type=PushType.ALERT,
    )
    assert result.is_successful
    async with listening(server, device) as socket:
        taken = await socket.take()
    assert (taken["priority"], taken["collapse_id"]) == (5, "Stand ½")
    (kept,) = (await api.ask("GET", f"/v1/devices/{device.id}/messages")).json["items"]
    assert 3590 <= seconds(kept["expires_at"]) - seconds(kept["created_at"]) <= 3600


def seconds(moment: str) -> float:
    return time.mktime(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S"))


async def test_a_newer_message_takes_the_place_of_one_with_its_collapse_id(
    server: ConformanceServer, api: Api, client: Client
) -> None:
    device = await api.register()
    for score in (1, 2, 3):
        changes = {"message": {"aps": {}, "score": score}, "collapse_key": "score"}
        assert (await client.push(device.token, **changes)).is_successful
    last = await client.push(device.token, message={"aps": {}, "over": True})
    async with listening(server, device) as socket:
        taken = await socket.take_many(2)
    assert bodies(taken) == [{"aps": {}, "score": 3}, {"aps": {}, "over": True}]
    assert taken[-1]["id"] == last.notification_id


FAULTS: list[tuple[str, str, dict[str, Any]]] = [
    ("400", "BadCollapseId", {"collapse_key": "x" * 65}),
    ("400", "BadDeviceToken", {"token": "0" * 64}),
    ("400", "BadDeviceToken", {"token": "not-hexadecimal"}),
    ("400", "BadExpirationDate", {"time_to_live": -(10**10)}),
    ("400", "BadMessageId", {"notification_id": "no-uuid"}),
    ("400", "BadPriority", {"priority": 7}),
    ("400", "BadPriority", {"priority": 10, "push_type": PushType.BACKGROUND}),
    ("400", "BadTopic", {"apns_topic": "no topic"}),
    ("400", "BadTopic", {"push_type": PushType.VOIP}),
    ("400", "MissingDeviceToken", {"token": ""}),
    ("400", "PayloadEmpty", {"message": {}}),
    ("400", "PayloadEmpty", {"message": [MESSAGE]}),
    ("400", "TopicDisallowed", {"apns_topic": "com.example.unknown"}),
    ("404", "BadPath", {"token": "a/b"}),
    ("413", "PayloadTooLarge", {"message": {"text": "x" * 4096}}),
]


@pytest.mark.parametrize(
    ("status", "reason", "changes"),
    FAULTS,
    ids=[f"{fault[1]}{n}" for n, fault in enumerate(FAULTS)],
)
async def test_a_refusal_names_its_reason(
    api: Api, client: Client, status: str, reason: str, changes: dict[str, Any]
) -> None:
    token = (await api.register()).token
    refused = await client.refusal(**({"token": token} | changes))
    assert refused == (status, reason)
    assert (await client.push(token)).is_successful


async def test_the_token_of_another_app_is_refused(other_api: Api, client: Client) -> None:
    theirs = await other_api.register()
    assert await client.refusal(theirs.token) == ("400", "BadDeviceToken")


@pytest.mark.parametrize(
    ("end", "reason"), [("revoked", "Unregistered"), ("token_expired", "ExpiredToken")]
)
async def test_an_invalid_token_is_gone_since_a_time(
    api: Api, client: Client, end: str, reason: str
) -> None:
    device = await api.register()
    before = int(time.time() * 1000)
    await api.invalidate(device, end)
    result = await client.push(device.token)
    assert (result.status, result.description) == ("410", reason)
    assert isinstance(result.timestamp, int)
    assert before <= result.timestamp <= time.time() * 1000


@pytest.mark.parametrize("identity", [{"key_id": "NOSUCHKEY0"}, {"team_id": "NOSUCHTEAM"}])
async def test_a_wrong_identity_is_refused(
    server: ConformanceServer, provider: Provider, api: Api, identity: dict[str, str]
) -> None:
    token = (await api.register()).token
    async with calling(server, provider, **identity) as stranger:
        assert await stranger.refusal(token) == ("403", "InvalidProviderToken")


async def test_a_provider_token_may_be_changed_once(api: Api, client: Client) -> None:
    """By itself aioapns signs a new one every 30 minutes; here, with every push."""
    device = await api.register()
    assert (await client.push(device.token)).is_successful
    (connection,) = client.apns.pool.connections
    signer: Any = connection.auth_provider
    signer.TOKEN_TTL = -1
    assert (await client.push(device.token)).is_successful
    refused = await client.refusal(device.token)
    assert refused == ("429", "TooManyProviderTokenUpdates")


async def test_a_thousand_pushes_in_parallel_on_one_connection(
    server: ConformanceServer, api: Api, client: Client
) -> None:
    device = await api.register()
    wanted = {str(uuid.uuid4()) for _ in range(PARALLEL)}
    async with listening(server, device) as socket, asyncio.TaskGroup() as group:
        arriving = group.create_task(socket.take_many(PARALLEL))
        pushes = [
            group.create_task(client.push(device.token, notification_id=each)) for each in wanted
        ]
    assert Counter(push.result().status for push in pushes) == {"200": PARALLEL}
    assert {frame["id"] for frame in arriving.result()} == wanted
    assert len(client.apns.pool.connections) == 1


async def test_good_and_bad_pushes_in_parallel_share_a_connection(api: Api, client: Client) -> None:
    """A refusal leaves other requests alone: a wrong frame would cost aioapns its connection."""
    device = await api.register()
    assert (await client.push(device.token)).is_successful
    (connection,) = client.apns.pool.connections
    bad = {"collapse_key": "x" * 65}
    async with asyncio.TaskGroup() as group:
        pushes = [
            group.create_task(client.push(device.token, **(bad if number % 2 else {})))
            for number in range(400)
        ]
    found = Counter(push.result().description for push in pushes)
    assert found == {None: 200, "BadCollapseId": 200}
    assert client.apns.pool.connections == [connection]
