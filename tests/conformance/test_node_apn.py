"""@parse/node-apn, unmodified, against a running server: pushes, channels and broadcasts."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.clients.node_apn import NodeApn, driving
from tests.conformance.device import Api, Device, bodies, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.node import ask, bundled_node

PARALLEL = 1_000
SESSIONS = 2  # one for pushes and one for channels, as node-apn has it
STORED, NOT_STORED = 1, 0
STATE = {"aps": {"event": "update", "timestamp": 1, "content-state": {"score": "1:0 ⚽"}}}


@pytest.fixture(scope="module")
def client(server: ConformanceServer, provider: Provider) -> Iterator[NodeApn]:
    """One provider for all tests: no refusal may cost it one of its sessions."""
    with driving(server, provider) as driver:
        driver.do("send", devices=["0" * 64], notifications=[{}])
        driver.do("channels", action="readAll", bundleId=provider.bundle_id, notification={})
        yield driver


def alert(provider: Provider, **changes: object) -> dict[str, object]:
    known = {"topic": provider.bundle_id, "pushType": "alert", "alert": "Grüße 🎺"}
    return known | {"payload": {"order": 7}} | changes


def update(channel_id: str, **changes: object) -> dict[str, Any]:
    return {"channelId": channel_id, "pushType": "liveactivity", "rawPayload": STATE} | changes


async def make_channel(client: NodeApn, provider: Provider, policy: int) -> str:
    made = await client.channels(
        "create", provider.bundle_id, payload={"message-storage-policy": policy}
    )
    channel_id: str = made["sent"][0]["apns-channel-id"]
    return channel_id


def is_uuid(text: str) -> bool:
    return str(uuid.UUID(text)) == text


def test_a_bundled_node_can_stand_in() -> None:
    node = bundled_node()
    assert ask(node.node, "--version").startswith("v24.")
    assert ask(*node.npm, "--version")[0].isdigit()


async def test_what_is_sent_arrives(
    server: ConformanceServer, provider: Provider, client: NodeApn, device: Device
) -> None:
    wanted = str(uuid.uuid4())
    async with listening(server, device) as socket:
        done = await client.send(device.token, alert(provider, id=wanted, collapseId="one"))
        taken = await socket.take()
    assert done["failed"] == []
    assert done["sent"] == [{"device": device.token, "apns-id": wanted}]
    assert (taken["id"], taken["collapse_id"], taken["priority"]) == (wanted, "one", 10)
    assert taken["payload"] == {"order": 7, "aps": {"alert": "Grüße 🎺"}}


async def test_an_id_is_made_if_none_is_given(
    provider: Provider, client: NodeApn, device: Device
) -> None:
    done = await client.send(device.token, alert(provider))
    assert is_uuid(done["sent"][0]["apns-id"])


FAULTS: list[tuple[int, str, dict[str, object]]] = [
    (400, "BadCollapseId", {"collapseId": "x" * 65}),
    (400, "BadExpirationDate", {"expiry": 1.5}),
    (400, "BadMessageId", {"id": "no-uuid"}),
    (400, "BadPriority", {"priority": 7}),
    (400, "BadPriority", {"pushType": "background"}),
    (400, "BadTopic", {"topic": "no topic"}),
    (400, "BadTopic", {"pushType": "liveactivity"}),
    (400, "InvalidPushType", {"pushType": "nonsense"}),
    (400, "MissingTopic", {"topic": None}),
    (400, "PayloadEmpty", {"rawPayload": {}}),
    (400, "PayloadEmpty", {"rawPayload": ["a list"]}),
    (400, "TopicDisallowed", {"topic": "com.example.unknown"}),
    (413, "PayloadTooLarge", {"payload": {"text": "x" * 4096}}),
]


@pytest.mark.parametrize(
    ("status", "reason", "changes"),
    FAULTS,
    ids=[f"{fault[1]}{number}" for number, fault in enumerate(FAULTS)],
)
async def test_a_refusal_names_its_reason(
    provider: Provider,
    client: NodeApn,
    device: Device,
    *,
    status: int,
    reason: str,
    changes: dict[str, object],
) -> None:
    done = await client.send(device.token, alert(provider, **changes), alert(provider))
    (failed,) = done["failed"]
    assert (failed["status"], failed["reason"]) == (status, reason)
    assert (len(done["sent"]), done["sessions"]) == (1, SESSIONS)


async def test_a_token_that_is_not_a_devices_is_refused(
    provider: Provider, other_api: Api, client: NodeApn
) -> None:
    theirs = (await other_api.register()).token
    reasons = [
        (await client.send(token, alert(provider)))["failed"][0]["reason"]
        for token in ("0" * 64, "not-hexadecimal", "", "a/b", theirs)
    ]
    bad = "BadDeviceToken"
    assert reasons == [bad, bad, "MissingDeviceToken", "BadPath", bad]


@pytest.mark.parametrize(
    ("end", "reason"), [("revoked", "Unregistered"), ("token_expired", "ExpiredToken")]
)
async def test_an_invalid_token_is_gone_since_a_time(
    api: Api, provider: Provider, client: NodeApn, device: Device, *, end: str, reason: str
) -> None:
    before = int(time.time() * 1000)
    await api.invalidate(device, end)
    (failed,) = (await client.send(device.token, alert(provider)))["failed"]
    assert (failed["status"], failed["reason"]) == (410, reason)
    assert before <= failed["timestamp"] <= time.time() * 1000


@pytest.mark.parametrize("identity", [{"keyId": "NOSUCHKEY0"}, {"teamId": "NOSUCHTEAM"}])
async def test_a_wrong_identity_is_refused(
    server: ConformanceServer, provider: Provider, device: Device, identity: dict[str, str]
) -> None:
    with driving(server, provider, **identity) as stranger:
        (failed,) = (await stranger.send(device.token, alert(provider)))["failed"]
    assert (failed["status"], failed["reason"]) == (403, "InvalidProviderToken")


async def test_a_token_that_has_expired_is_renewed_and_the_push_repeated(
    provider: Provider, client: NodeApn, device: Device
) -> None:
    """A 403 ExpiredProviderToken makes node-apn sign anew and try again by itself."""
    await client.order("age", seconds=2 * 3600)
    done = await client.send(device.token, alert(provider))
    assert (len(done["sent"]), done["failed"], done["sessions"]) == (1, [], SESSIONS)


async def test_a_thousand_pushes_in_parallel_on_one_session(
    server: ConformanceServer, provider: Provider, client: NodeApn, device: Device
) -> None:
    wanted = [str(uuid.uuid4()) for _ in range(PARALLEL)]
    done = await client.send(device.token, *(alert(provider, id=each) for each in wanted))
    assert done["failed"] == []
    assert sorted(each["apns-id"] for each in done["sent"]) == sorted(wanted)
    assert done["sessions"] == SESSIONS
    async with listening(server, device) as socket:
        assert {frame["id"] for frame in await socket.take_many(PARALLEL)} == set(wanted)


async def test_a_channel_is_made_read_listed_and_deleted(
    provider: Provider, client: NodeApn
) -> None:
    bundle_id = provider.bundle_id
    channel_id = await make_channel(client, provider, STORED)
    (read,) = (await client.channels("read", bundle_id, channelId=channel_id))["sent"]
    assert (read["message-storage-policy"], read["push-type"]) == (STORED, "LiveActivity")
    assert is_uuid(read["apns-request-id"])
    assert channel_id in await list_channels(client, bundle_id)
    deleted = await client.channels("delete", bundle_id, channelId=channel_id)
    assert (len(deleted["sent"]), deleted["failed"]) == (1, [])
    assert channel_id not in await list_channels(client, bundle_id)
    (failed,) = (await client.channels("read", bundle_id, channelId=channel_id))["failed"]
    assert (failed["status"], failed["reason"]) == (400, "ChannelNotRegistered")


async def list_channels(client: NodeApn, bundle_id: str) -> list[str]:
    (listed,) = (await client.channels("readAll", bundle_id))["sent"]
    channels: list[str] = listed["channels"]
    return channels


async def test_a_broadcast_reaches_who_listens(
    server: ConformanceServer, api: Api, provider: Provider, client: NodeApn, device: Device
) -> None:
    for policy in (STORED, NOT_STORED):
        channel_id = await make_channel(client, provider, policy)
        await api.subscribe(device, channel_id)
        async with listening(server, device) as socket:
            wanted = str(uuid.uuid4())
            done = await client.broadcast(
                provider.bundle_id, **update(channel_id, requestId=wanted, expiry=0)
            )
            taken = await socket.take()
        assert (done["failed"], done["sent"][0]["apns-request-id"]) == ([], wanted)
        assert (taken["id"], taken["topic"], taken["payload"]) == (wanted, channel_id, STATE)


async def test_who_was_away_gets_the_last_broadcast_if_the_channel_keeps_it(
    server: ConformanceServer, api: Api, provider: Provider, client: NodeApn, device: Device
) -> None:
    later = int(time.time()) + 3600
    channels = [await make_channel(client, provider, policy) for policy in (NOT_STORED, STORED)]
    for channel_id, expiry in zip(channels, (0, later), strict=True):
        await api.subscribe(device, channel_id)
        for score in (1, 2):
            news = update(channel_id, expiry=expiry, rawPayload={"aps": {}, "score": score})
            assert (await client.broadcast(provider.bundle_id, **news))["failed"] == []
    last = await client.send(device.token, alert(provider, rawPayload={"last": True}, priority=1))
    async with listening(server, device) as socket:
        taken = await socket.take_many(2)
    assert bodies(taken) == [{"aps": {}, "score": 2}, {"last": True}]
    assert taken[1]["id"] == last["sent"][0]["apns-id"]


BROADCAST_FAULTS: list[tuple[int, str, dict[str, object]]] = [
    (400, "BadChannelId", {"channelId": "no base64"}),
    (400, "BadExpirationDate", {"expiry": 2_000_000_000}),
    (400, "BadMessageId", {"requestId": "no-uuid"}),
    (400, "BadPriority", {"priority": 7}),
    (400, "ChannelNotRegistered", {"channelId": "AAAAAAAAAAAAAAAAAAAAAA=="}),
    (400, "InvalidPushType", {"pushType": "alert"}),
    (400, "MissingChannelId", {"channelId": None}),
    (400, "MissingPushType", {"pushType": None}),
    (400, "PayloadEmpty", {"rawPayload": {}}),
    (400, "TopicDisallowed", {"bundleId": "com.example.demo.push-type.liveactivity"}),
    (403, "TopicMismatch", {"bundleId": "com.example.unknown"}),
    (413, "PayloadTooLarge", {"rawPayload": {"text": "x" * 5120}}),
]


async def test_a_refused_broadcast_names_its_reason(provider: Provider, client: NodeApn) -> None:
    channel_id = await make_channel(client, provider, NOT_STORED)
    found = []
    for _, _, changes in BROADCAST_FAULTS:
        given = update(channel_id) | changes
        bundle_id = str(given.pop("bundleId", provider.bundle_id))
        (failed,) = (await client.broadcast(bundle_id, **given))["failed"]
        found.append((failed["status"], failed["reason"], changes))
    assert found == BROADCAST_FAULTS


CHANNEL_FAULTS: list[tuple[int, str, dict[str, object]]] = [
    (400, "BadRequestParams", {"message-storage-policy": 2}),
    (400, "BadRequestParams", {"message-storage-policy": 1, "colour": "red"}),
    (400, "InvalidPushType", {"message-storage-policy": 1, "push-type": "alert"}),
]


async def test_a_channel_that_cannot_be_made_names_its_reason(
    provider: Provider, client: NodeApn
) -> None:
    found = []
    for _, _, payload in CHANNEL_FAULTS:
        made = await client.channels("create", provider.bundle_id, payload=payload)
        (failed,) = made["failed"]
        found.append((failed["status"], failed["reason"], payload))
    assert found == CHANNEL_FAULTS
