"""The limits of a server, set low: too many pushes, too many writes, too many channels."""

import base64
import sqlite3
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conformance.clients.aioapns_client import calling
from tests.conformance.clients.curl import Curl, curls
from tests.conformance.clients.http2 import Http2
from tests.conformance.clients.node_apn import driving
from tests.conformance.device import Api, Device
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer, Installation
from tests.conformance.wire.prepared import bearer, create, manage, push

PER_MINUTE = 3
CHANNELS_LIMIT = 10_000
SEED_CHANNEL = """INSERT INTO topics
(app_id, topic, is_broadcast_channel, storage_policy, last_sequence, created_at)
VALUES (?, ?, 1, 1, 0, 0)"""


@pytest.fixture(scope="module")
def server(installation: Installation) -> Iterator[ConformanceServer]:
    flags = {"device_messages_per_minute": str(PER_MINUTE), "write_waiting": "2"}
    with ConformanceServer(installation, **flags) as running:
        yield running


async def test_too_many_pushes_to_one_device_are_refused(
    provider: Provider, api: Api, client: Http2, device: Device
) -> None:
    """Twice as many and one: a minute may end in between."""
    good = push(provider, device.token)
    answers = [await client.ask(good) for _ in range(2 * PER_MINUTE + 1)]
    refused = [answer for answer in answers if answer.status != 200]
    assert [answer.status for answer in answers[:PER_MINUTE]] == [200] * PER_MINUTE
    assert {answer.refusal for answer in refused} == {(429, "TooManyRequests")}
    assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in refused)
    another = push(provider, (await api.register()).token).but(*good.headers[0])
    assert (await client.ask(another)).status == 200


async def test_aioapns_is_refused_too_many(
    server: ConformanceServer, provider: Provider, device: Device
) -> None:
    async with calling(server, provider) as client:
        found = [await client.refusal(device.token) for _ in range(2 * PER_MINUTE + 1)]
    assert set(found) == {("200", None), ("429", "TooManyRequests")}


async def test_node_apn_is_refused_too_many(
    server: ConformanceServer, provider: Provider, device: Device
) -> None:
    """Each refusal it repeats three times by itself, and then gives up."""
    alert: dict[str, object] = {"topic": provider.bundle_id, "alert": "hi"}
    with driving(server, provider) as client:
        done = [await client.send(device.token, alert) for _ in range(2 * PER_MINUTE + 1)]
    failed = [(each["status"], each["reason"]) for some in done for each in some["failed"]]
    assert set(failed) == {(429, "TooManyRequests")}


@pytest.mark.parametrize("curl", curls(), ids=lambda curl: type(curl).__name__)
async def test_curl_is_refused_too_many(
    server: ConformanceServer, provider: Provider, device: Device, curl: Curl
) -> None:
    answers = curl.ask(server, [push(provider, device.token)] * (2 * PER_MINUTE + 1))
    assert {answer.refusal for answer in answers} == {(200, None), (429, "TooManyRequests")}


async def test_what_cannot_be_stored_now_is_refused(
    provider: Provider, api: Api, client: Http2
) -> None:
    devices = [await api.register() for _ in range(100)]
    devices *= PER_MINUTE  # enough that more than two wait for a commit, however quick it is
    identity = bearer(provider.token())
    answers = await client.ask_all(push(provider, each.token).but(*identity) for each in devices)
    found = Counter(answer.refusal for answer in answers)
    assert set(found) == {(200, None), (503, "ServiceUnavailable")}
    assert await api.is_healthy()


async def test_an_app_may_have_so_many_channels_and_no_more(
    server: ConformanceServer, provider: Provider, client: Http2
) -> None:
    seed_channels(server, provider, CHANNELS_LIMIT - 1)
    identity = bearer(provider.token())
    wanted = create(provider, 1).but(*identity)
    made, refused = await client.ask(wanted), await client.ask(wanted)
    assert made.status == 201
    assert refused.refusal == (400, "CannotCreateChannelConfig")
    channel_id = made.headers["apns-channel-id"].decode()
    deleted = await client.ask(manage(provider, "DELETE", channel_id).but(*identity))
    assert (deleted.status, (await client.ask(wanted)).status) == (204, 201)


def seed_channels(server: ConformanceServer, provider: Provider, count: int) -> None:
    """Write channels straight into the database: asking for each would take a minute."""
    ids = (base64.b64encode(number.to_bytes(16, "big")).decode() for number in range(count))
    connection = sqlite3.connect(server.data / "clarion.db", timeout=10)
    with connection:
        connection.executemany(SEED_CHANNEL, [(provider.app_id, each) for each in ids])
    connection.close()
