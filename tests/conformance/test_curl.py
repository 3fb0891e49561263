"""`curl --http2` against a running server, by Apple's recipe: OpenSSL's signatures are ASN.1."""

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from tests.conformance.clients.curl import Answer, Curl, curls
from tests.conformance.clients.http2 import Request
from tests.conformance.device import Api, Device, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.replacing import replace

PARALLEL = 1_000

pytestmark = pytest.mark.parametrize("curl", curls(), ids=lambda curl: type(curl).__name__)


def push(provider: Provider, token: str, jwt: str = "") -> Request:
    """The request of Apple's page "Sending push notifications using command-line tools"."""
    return Request(
        path=f"/3/device/{token}",
        headers=(
            ("apns-topic", provider.bundle_id),
            ("apns-push-type", "alert"),
            ("authorization", f"bearer {jwt or provider.token(is_der=True)}"),
        ),
        body=b'{"aps":{"alert":"test"}}',
    )


def refusals(answers: Sequence[Answer]) -> list[tuple[int, str | None]]:
    return [answer.refusal for answer in answers]


async def test_what_is_sent_arrives(
    server: ConformanceServer, provider: Provider, device: Device, curl: Curl
) -> None:
    wanted = str(uuid.uuid4())
    async with listening(server, device) as socket:
        (answer,) = curl.ask(server, [push(provider, device.token).but("apns-id", wanted)])
        taken = await socket.take()
    assert (answer.status, answer.version, answer.body) == (200, "2", b"")
    assert answer.headers["apns-id"] == taken["id"] == wanted
    assert taken["payload"] == {"aps": {"alert": "test"}}


async def test_a_refusal_names_its_reason(
    server: ConformanceServer, provider: Provider, other_api: Api, device: Device, curl: Curl
) -> None:
    """Everything that a mistyped command can provoke."""
    good = push(provider, device.token)
    theirs = (await other_api.register()).token
    at = partial(_at, good)
    faults = {
        (400, "BadCollapseId"): good.but("apns-collapse-id", "x" * 65),
        (400, "BadDeviceToken"): at(theirs),
        (400, "BadExpirationDate"): good.but("apns-expiration", "tomorrow"),
        (400, "BadMessageId"): good.but("apns-id", "1"),
        (400, "BadPriority"): good.but("apns-priority", "high"),
        (400, "BadTopic"): good.but("apns-topic", "demo"),
        (400, "DuplicateHeaders"): good.also("apns-topic", provider.bundle_id),
        (400, "InvalidPushType"): good.but("apns-push-type", "push"),
        (400, "MissingDeviceToken"): at(""),
        (400, "MissingTopic"): good.without("apns-topic"),
        (400, "PayloadEmpty"): replace(good, body=b""),
        (400, "TopicDisallowed"): good.but("apns-topic", "com.example.unknown"),
        (403, "MissingProviderToken"): good.without("authorization"),
        (404, "BadPath"): replace(good, path="/3/devices/1"),
        (405, "MethodNotAllowed"): replace(good, method="PUT"),
        (413, "PayloadTooLarge"): replace(good, body=b'{"a":"%s"}' % (b"x" * 4096)),
    }
    answers = curl.ask(server, [*faults.values(), good])
    assert refusals(answers) == [*faults, (200, None)]
    assert sum(answer.connects for answer in answers) == 1


def _at(request: Request, token: str) -> Request:
    return replace(request, path=f"/3/device/{token}")


async def test_a_provider_token_that_will_not_do_is_refused(
    server: ConformanceServer, provider: Provider, device: Device, curl: Curl
) -> None:
    old = provider.token(claims={"iat": int(time.time()) - 3700}, is_der=True)
    strange = provider.token(header={"kid": "NOSUCHKEY0"}, is_der=True)
    answers = curl.ask(server, [push(provider, device.token, each) for each in (old, strange)])
    assert refusals(answers) == [(403, "ExpiredProviderToken"), (403, "InvalidProviderToken")]


async def test_an_invalid_token_is_gone(
    server: ConformanceServer, api: Api, provider: Provider, device: Device, curl: Curl
) -> None:
    await api.invalidate(device)
    (answer,) = curl.ask(server, [push(provider, device.token)])
    assert answer.refusal == (410, "Unregistered")


async def test_a_provider_token_may_be_changed_once(
    server: ConformanceServer, provider: Provider, device: Device, curl: Curl
) -> None:
    tokens = [provider.token(is_der=True) for _ in range(3)]
    answers = curl.ask(server, [push(provider, device.token, each) for each in tokens])
    assert refusals(answers) == [(200, None), (200, None), (429, "TooManyProviderTokenUpdates")]


async def test_a_thousand_pushes_in_parallel_on_one_connection(
    server: ConformanceServer, provider: Provider, device: Device, curl: Curl
) -> None:
    wanted = [str(uuid.uuid4()) for _ in range(PARALLEL)]
    good = push(provider, device.token)
    requests = [good.but("apns-id", each) for each in wanted]
    answers = curl.ask(server, requests, are_parallel=True)
    assert Counter(refusals(answers)) == {(200, None): PARALLEL}
    assert [answer.headers["apns-id"] for answer in answers] == wanted
    assert sum(answer.connects for answer in answers) == 1
