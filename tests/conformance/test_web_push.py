"""pywebpush and web-push of npm, unmodified, send to the endpoint of a device."""

from typing import Any

import pytest

from clarion.push.model.vapid import new_private_key
from tests.conformance.clients.web_push import SENDERS, Sender, public_key_of, send
from tests.conformance.device import Api, Device, listening
from tests.conformance.server import ConformanceServer, Installation
from tests.web_push import Browser

TEXT = "Grüße 🎺"


@pytest.fixture(params=SENDERS)
def sender(request: pytest.FixtureRequest, installation: Installation) -> Sender:
    return SENDERS[request.param](installation.ca_path)


@pytest.fixture
def browser() -> Browser:
    return Browser()


async def make_endpoint(api: Api, device: Device, **details: str) -> Any:
    made = await api.ask("POST", f"/v1/devices/{device.id}/endpoints", details)
    assert made.status == 201, made
    return made.json


@pytest.fixture
async def subscription(api: Api, device: Device, browser: Browser) -> str:
    return browser.subscription((await make_endpoint(api, device))["endpoint"])


@pytest.mark.parametrize("encoding", ["aes128gcm", "aesgcm"])
@pytest.mark.parametrize("vapid_key", [None, new_private_key()], ids=["unsigned", "signed"])
async def test_a_connected_device_gets_what_it_can_decrypt(
    server: ConformanceServer,
    device: Device,
    sender: Sender,
    browser: Browser,
    subscription: str,
    encoding: str,
    vapid_key: str | None,
) -> None:
    async with listening(server, device) as socket:
        answer = await send(
            sender, subscription, TEXT, vapid_key=vapid_key, encoding=encoding, ttl=60
        )
        taken = await socket.take()
    assert (answer.status, answer.headers["ttl"]) == (201, "60")
    assert answer.headers["location"].startswith(f"https://localhost:{server.tls_port}/push/")
    assert browser.open(taken["payload"]["webpush"]).decode() == TEXT
    assert taken["priority"] == 10


async def test_a_device_that_is_offline_gets_it_when_it_connects(
    server: ConformanceServer, device: Device, sender: Sender, browser: Browser, subscription: str
) -> None:
    first = await send(sender, subscription, "stored", ttl=3600, urgency="high")
    dropped = await send(sender, subscription, "not stored", ttl=0)
    second = await send(sender, subscription, "stored, too", ttl=3600, urgency="very-low")
    assert [each.status for each in (first, dropped, second)] == [201] * 3
    async with listening(server, device) as socket:
        assert socket.pending == 2
        taken = await socket.take_many(2)
    texts = [browser.open(each["payload"]["webpush"]).decode() for each in taken]
    assert texts == ["stored", "stored, too"]
    assert [each["priority"] for each in taken] == [10, 1]


async def test_a_message_replaces_an_earlier_one_of_its_topic(
    server: ConformanceServer, device: Device, sender: Sender, browser: Browser, subscription: str
) -> None:
    for text, topic in [("old", "score"), ("other", "weather"), ("new", "score")]:
        assert (await send(sender, subscription, text, ttl=60, topic=topic)).status == 201
    async with listening(server, device) as socket:
        assert socket.pending == 2
        taken = await socket.take_many(2)
    texts = {browser.open(each["payload"]["webpush"]).decode() for each in taken}
    assert texts == {"other", "new"}


async def test_a_restricted_endpoint_takes_messages_signed_by_its_key_only(
    api: Api, device: Device, sender: Sender, browser: Browser
) -> None:
    key = new_private_key()
    made = await make_endpoint(api, device, vapid_key=public_key_of(key))
    subscription = browser.subscription(made["endpoint"])
    for given, status in [(key, 201), (new_private_key(), 403), (None, 401), (key, 201)]:
        assert (await send(sender, subscription, TEXT, vapid_key=given, ttl=60)).status == status


async def test_whoever_sends_to_what_has_ended_is_told_to_stop(
    api: Api, device: Device, sender: Sender, browser: Browser
) -> None:
    deleted, kept = [await make_endpoint(api, device) for _ in range(2)]
    path = f"/v1/devices/{device.id}/endpoints/{deleted['endpoint_id']}"
    assert (await send(sender, browser.subscription(deleted["endpoint"]), TEXT)).status == 201
    assert (await api.ask("DELETE", path)).status == 204
    assert (await send(sender, browser.subscription(deleted["endpoint"]), TEXT)).status == 404
    assert (await send(sender, browser.subscription(kept["endpoint"]), TEXT)).status == 201
    await api.invalidate(device)
    assert (await send(sender, browser.subscription(kept["endpoint"]), TEXT)).status == 410


async def test_the_largest_message_arrives(
    server: ConformanceServer, device: Device, sender: Sender, browser: Browser, subscription: str
) -> None:
    async with listening(server, device) as socket:
        assert (await send(sender, subscription, "x" * 3993, ttl=60)).status == 201
        taken = await socket.take()
    assert browser.open(taken["payload"]["webpush"]) == b"x" * 3993
    assert (await send(sender, subscription, "x" * 3994, ttl=60)).status == 413


async def test_a_message_is_stored_for_thirty_days_at_most(
    api: Api, device: Device, sender: Sender, subscription: str
) -> None:
    answer = await send(sender, subscription, TEXT, ttl=2**31)
    assert answer.headers["ttl"] == str(30 * 24 * 3600)
    message_id = answer.headers["location"].rsplit("/", 1)[1]
    assert await api.status_of(device, message_id) == ("queued", "device_offline")
