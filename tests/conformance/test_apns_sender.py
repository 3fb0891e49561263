"""Our own sender for APNs, with this server in the place of Apple."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clarion.catalog.model import Priority
from clarion.channels.apns import APNS
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import (
    Delivered,
    Gone,
    Misconfigured,
    OutgoingMessage,
    Retry,
    Verified,
)
from clarion.channels.port import Sender
from clarion.clock import SystemClock
from clarion.history.model import Content
from tests.conformance.device import Api, Device, listening
from tests.conformance.other_apps import OtherApps
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.outgoing import make_context, make_outgoing, open_http, open_sender

HOUR_MS = 3600 * 1000


@pytest.fixture
async def http() -> AsyncIterator[HttpClients]:
    clients = open_http()
    yield clients
    await clients.close()


@asynccontextmanager
async def opened(
    server: ConformanceServer, provider: Provider, http: HttpClients, **changes: str
) -> AsyncIterator[Sender]:
    """Open the sender for an app of the server; changes are those of its settings and its key."""
    key = changes.pop("key", provider.key_pem)
    settings: dict[str, object] = {
        "base_url": f"https://127.0.0.1:{server.tls_port}",
        "ca_path": str(server.ca_path),
        "team_id": provider.team_id,
        "key_id": provider.key_id,
        "topic": provider.bundle_id,
    }
    sender = open_sender(APNS, make_context(http), settings | changes, {"key": key})
    try:
        yield sender
    finally:
        await sender.close()


@pytest.fixture
async def sender(
    server: ConformanceServer, provider: Provider, http: HttpClients
) -> AsyncIterator[Sender]:
    async with opened(server, provider, http) as opened_sender:
        yield opened_sender


def make_push(device: Device, number: int = 1, **changes: object) -> OutgoingMessage:
    return make_outgoing(device.token, id=f"n{number}/push/{device.id}", **changes)  # type: ignore[arg-type]


async def accept(sender: Sender, message: OutgoingMessage) -> str:
    """Send a message that is accepted, and return its id."""
    outcome = await sender.send(message)
    assert isinstance(outcome, Delivered), outcome
    assert outcome.response is not None
    return outcome.response.removeprefix("200 ")


PRIORITIES = [(Priority.CRITICAL, 10), (Priority.HIGH, 10), (Priority.MEDIUM, 5), (Priority.LOW, 1)]


@pytest.mark.parametrize(("priority", "expected"), PRIORITIES)
async def test_a_push_arrives_with_what_its_notification_says(
    server: ConformanceServer, sender: Sender, device: Device, priority: Priority, expected: int
) -> None:
    content = Content(data={"order": 7}, deeplink="app://orders/7", collapse_key="order 7")
    message = make_push(device, content=content, priority=priority, body="Grüße 📦")
    sent_id = await accept(sender, message)
    # What has the lowest priority waits for a moment at which the device is reached anyway.
    async with listening(server, device) as socket:
        frame = await socket.take()
    assert (frame["id"], frame["priority"]) == (sent_id, expected)
    assert len(frame["collapse_id"]) == 32
    payload = frame["payload"]
    assert payload["aps"]["alert"] == {"title": "Bo", "body": "Grüße 📦"}
    assert payload["notification_id"] == message.notification.id
    assert (payload["data"], payload["deeplink"]) == ({"order": 7}, "app://orders/7")


async def test_a_connected_device_gets_it_at_once(
    server: ConformanceServer, sender: Sender, device: Device
) -> None:
    async with listening(server, device) as socket:
        sent_id = await accept(sender, make_push(device, priority=Priority.HIGH))
        assert (await socket.take())["id"] == sent_id


async def test_a_large_push_is_accepted(
    server: ConformanceServer, sender: Sender, device: Device
) -> None:
    content = Content(data={"text": "x" * 60_000})
    async with listening(server, device) as socket:
        await accept(sender, make_push(device, content=content, body="ü" * 60_000))
        payload = (await socket.take())["payload"]
    assert payload["truncated"]
    assert payload["aps"]["alert"]["body"].endswith("ü…")


async def test_pushes_of_one_key_replace_each_other(
    server: ConformanceServer, sender: Sender, device: Device
) -> None:
    content = Content(collapse_key="order 7")
    for number in range(3):
        await accept(sender, make_push(device, number, content=content, body=f"{number}"))
    async with listening(server, device) as socket:
        assert socket.pending == 1
        assert (await socket.take())["payload"]["aps"]["alert"]["body"] == "2"


async def test_the_expiry_is_taken_over(
    server: ConformanceServer, api: Api, sender: Sender, device: Device
) -> None:
    now = SystemClock().now()
    stored = await accept(sender, make_push(device, 1, expires_at=now + HOUR_MS))
    past = await accept(sender, make_push(device, 2, expires_at=now - HOUR_MS))
    short = await accept(sender, make_push(device, 3, expires_at=now + 2_000))
    assert await api.status_of(device, past) == ("expired", "not_stored")
    assert await api.status_of(device, short) == ("queued", "device_offline")
    last = await accept(sender, make_push(device, 4, priority=Priority.LOW))
    await asyncio.sleep(max(0, (now + 2_000) / 1000 - time.time()))  # this instant counts
    async with listening(server, device) as socket:
        assert await socket.take_until(last) == [stored]


async def test_a_repeat_is_recognised(
    server: ConformanceServer, provider: Provider, http: HttpClients, device: Device
) -> None:
    async with listening(server, device) as socket:
        ids = []
        # The second sender is another node, or this one after a restart.
        for _ in range(2):
            async with opened(server, provider, http) as sender:
                ids += [await accept(sender, make_push(device)) for _ in range(2)]
        async with opened(server, provider, http) as sender:
            last = await accept(sender, make_push(device, 2))
        assert await socket.take_until(last) == [ids[0]]
    assert len(set(ids)) == 1


@pytest.mark.parametrize("reason", ["revoked", "token_expired"])
async def test_a_device_that_was_invalidated_is_gone(
    api: Api, sender: Sender, device: Device, reason: str
) -> None:
    await accept(sender, make_push(device))
    await api.invalidate(device, reason)
    found = await sender.send(make_push(device, 2))
    assert isinstance(found, Gone)
    assert found.error_code.startswith("410 ")
    assert " since 20" in found.error_message


async def test_an_unknown_device_is_gone(sender: Sender) -> None:
    unknown = Device(id="x", token="0f" * 32, secret="")
    found = await sender.send(make_push(unknown))
    assert isinstance(found, Gone)
    assert found.error_code == "400 BadDeviceToken"


def make_pem() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()


@pytest.mark.parametrize(
    "changes",
    [{"key": make_pem()}, {"key_id": "UNKNOWN000"}, {"team_id": "UNKNOWN000"}],
    ids=["key", "key_id", "team_id"],
)
async def test_wrong_credentials_are_a_fault_of_the_provider(
    server: ConformanceServer,
    provider: Provider,
    http: HttpClients,
    device: Device,
    *,
    changes: dict[str, str],
) -> None:
    async with opened(server, provider, http, **changes) as sender:
        found = await sender.send(make_push(device))
    assert isinstance(found, Misconfigured)
    assert found.error_code == "403 InvalidProviderToken"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verified),
        ({"team_id": "WRONGTEAM0"}, Misconfigured),
        ({"topic": "com.example.unknown"}, Misconfigured),
    ],
    ids=["right", "team_id", "topic"],
)
async def test_credentials_are_tried_without_a_device(
    server: ConformanceServer,
    provider: Provider,
    http: HttpClients,
    *,
    changes: dict[str, str],
    expected: type[object],
) -> None:
    assert APNS.verify is not None
    async with opened(server, provider, http, **changes) as sender:
        assert isinstance(await APNS.verify(sender), expected)


async def test_a_wrong_topic_is_a_fault_of_the_provider(
    server: ConformanceServer, provider: Provider, http: HttpClients, device: Device
) -> None:
    async with opened(server, provider, http, topic="com.example.unknown") as sender:
        found = await sender.send(make_push(device))
    assert isinstance(found, Misconfigured)
    assert found.error_code == "400 TopicDisallowed"


# With connections in common, the second app would be refused, and its provider disabled.
async def test_apps_of_different_teams_push_at_the_same_time(
    server: ConformanceServer,
    sender: Sender,
    device: Device,
    other_api: Api,
    other_apps: OtherApps,
    http: HttpClients,
) -> None:
    theirs = await other_api.register()
    await accept(sender, make_push(device, 1))
    async with opened(server, other_apps.other, http) as other:
        await accept(other, make_push(theirs, 1))
        await accept(sender, make_push(device, 2))
        await accept(other, make_push(theirs, 2))


async def test_a_server_that_is_down_is_tried_again_later(
    server: ConformanceServer, provider: Provider, http: HttpClients, device: Device
) -> None:
    async with opened(server, provider, http, base_url="https://127.0.0.1:1024") as sender:
        assert isinstance(await sender.send(make_push(device)), Retry)
