"""The sender for APNs, against a server that speaks HTTP/2 and answers as Apple does, or badly."""

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from clarion.catalog.model import Priority
from clarion.channels.apns import ANSWERS, APNS, ApnsSecrets, ApnsSettings
from clarion.channels.authorities import CA_FAULT
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import (
    Delivered,
    Failure,
    Gone,
    Misconfigured,
    Outcome,
    Rejected,
    Retry,
    Unknown,
)
from clarion.channels.port import Sender
from clarion.clock import Clock
from clarion.history.model import Content
from tests.factories import MINUTE, NOW, FixedClock
from tests.outgoing import make_context, make_outgoing, open_http, open_sender
from tests.peers.authority import Authority
from tests.peers.http2 import BRIEFLY_S, Fault, Http2Peer, Reply, Request

DEVICE = "ab" * 32
TEAM = "TEAM000001"
SETTINGS: dict[str, object] = {"team_id": TEAM, "key_id": "KEY0000001", "topic": "com.example.app"}
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def pem(key: PrivateKey) -> str:
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()


KEY = ec.generate_private_key(ec.SECP256R1())


def accept(request: Request) -> Reply:
    return Reply(headers={"apns-id": request.headers["apns-id"]})


def refuse(status: int, reason: str, **more: object) -> Reply:
    body = json.dumps({"reason": reason, **more}).encode()
    return Reply(status=status, headers={"content-type": "application/json"}, body=body)


@pytest.fixture
async def apple(authority: Authority) -> AsyncIterator[Http2Peer]:
    async with Http2Peer(accept).serving(authority.server_context(["h2"])) as peer:
        yield peer


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@asynccontextmanager
async def opened(
    url: str, authority: Authority, http: HttpClients, clock: Clock, **changes: Any
) -> AsyncIterator[Sender]:
    """Open the sender for a server; changes are those of settings, or `timeout_s`."""
    timeout_s = changes.pop("timeout_s", 10.0)
    settings = SETTINGS | {"base_url": url, "ca_path": str(authority.ca_path)} | changes
    sender = open_sender(APNS, make_context(http, clock), settings, {"key": pem(KEY)}, timeout_s)
    try:
        yield sender
    finally:
        await sender.close()


Opener = Callable[..., Any]


@pytest.fixture
def opens(authority: Authority, http: HttpClients, clock: FixedClock) -> Opener:
    return lambda url, **changes: opened(url, authority, http, clock, **changes)


async def send(opens: Opener, peer: Http2Peer, **changes: Any) -> Outcome:
    async with opens(peer.url, **changes) as sender:
        outcome: Outcome = await sender.send(make_outgoing(DEVICE))
        return outcome


async def test_a_push_has_the_headers_of_its_notification(opens: Opener, apple: Http2Peer) -> None:
    message = make_outgoing(
        DEVICE,
        content=Content(collapse_key="table 4"),
        priority=Priority.HIGH,
        expires_at=NOW + 90 * MINUTE + 999,
    )
    async with opens(apple.url) as sender:
        outcome = await sender.send(message)
    (request,) = apple.requests
    assert (request.method, request.path) == ("POST", f"/3/device/{DEVICE}")
    named = {name: value for name, value in request.headers.items() if name.startswith("apns-")}
    collapse = named.pop("apns-collapse-id")
    push_id = named.pop("apns-id")
    assert named == {
        "apns-topic": "com.example.app",
        "apns-push-type": "alert",
        "apns-priority": "10",
        "apns-expiration": str(NOW // 1000 + 90 * 60),
    }
    assert len(collapse) == 32
    assert outcome == Delivered(response=f"200 {uuid.UUID(push_id)}")
    assert json.loads(request.body)["notification_id"] == message.notification.id
    scheme, token = request.headers["authorization"].split(" ")
    assert scheme == "bearer"
    assert jwt.get_unverified_header(token)["kid"] == "KEY0000001"
    claims = jwt.decode(token, KEY.public_key(), ["ES256"], options={"verify_iat": False})
    assert claims == {"iss": TEAM, "iat": NOW // 1000}


async def test_without_key_and_expiry_there_are_no_such_headers(
    opens: Opener, apple: Http2Peer
) -> None:
    await send(opens, apple)
    assert not {"apns-expiration", "apns-collapse-id"} & apple.requests[0].headers.keys()


async def test_an_id_is_the_same_for_every_attempt(opens: Opener, apple: Http2Peer) -> None:
    for _ in range(2):
        await send(opens, apple)
    async with opens(apple.url) as sender:
        await sender.send(make_outgoing(DEVICE, id="n2/push/d1"))
    ids = [request.headers["apns-id"] for request in apple.requests]
    assert ids[0] == ids[1] != ids[2]


async def test_many_messages_share_a_connection_and_a_token(
    opens: Opener, apple: Http2Peer
) -> None:
    async with opens(apple.url) as sender:
        await sender.send(make_outgoing(DEVICE))
        outcomes = await asyncio.gather(*(sender.send(make_outgoing(DEVICE)) for _ in range(50)))
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    assert apple.connections == 1
    assert len({request.headers["authorization"] for request in apple.requests}) == 1


async def test_of_a_server_that_has_both_it_takes_http_2(
    opens: Opener, authority: Authority
) -> None:
    tls = authority.server_context(["h2", "http/1.1"])
    async with Http2Peer(accept).serving(tls) as peer:
        assert isinstance(await send(opens, peer), Delivered)
        assert peer.protocols == ["h2"]


# A connection is bound to the team of its first push: the tokens of another are refused on it.
async def test_two_teams_never_share_a_connection(opens: Opener, apple: Http2Peer) -> None:
    async with opens(apple.url) as one, opens(apple.url, team_id="TEAM000002") as other:
        for sender in (one, other, one):
            await sender.send(make_outgoing(DEVICE))
    first, second, third = (request.connection for request in apple.requests)
    assert first == third != second


def tokens_of(peer: Http2Peer) -> list[str]:
    return [request.headers["authorization"] for request in peer.requests]


async def test_a_token_is_renewed_before_it_is_an_hour_old(
    opens: Opener, apple: Http2Peer, clock: FixedClock
) -> None:
    async with opens(apple.url) as sender:
        for _ in range(13):
            await sender.send(make_outgoing(DEVICE))
            clock.advance(10 * MINUTE)
    tokens = tokens_of(apple)
    changes = [number for number in range(1, 13) if tokens[number] != tokens[number - 1]]
    assert changes == [5, 10]


@pytest.mark.parametrize("step", [-3 * 60 * MINUTE, 3 * 60 * MINUTE])
async def test_a_token_of_another_time_is_not_used_after_the_clock_was_set(
    opens: Opener, apple: Http2Peer, clock: FixedClock, step: int
) -> None:
    async with opens(apple.url) as sender:
        await sender.send(make_outgoing(DEVICE))
        clock.step(step)
        await sender.send(make_outgoing(DEVICE))
        clock.step(-MINUTE // 2)
        await sender.send(make_outgoing(DEVICE))
    first, second, third = tokens_of(apple)
    assert first != second == third


async def test_an_expired_token_is_replaced_and_the_message_sent_again(
    opens: Opener, apple: Http2Peer, clock: FixedClock
) -> None:
    async with opens(apple.url) as sender:
        await sender.send(make_outgoing(DEVICE))
        clock.advance(10 * MINUTE)
        apple.faults += [refuse(403, "ExpiredProviderToken")] * 5
        outcomes = await asyncio.gather(*(sender.send(make_outgoing(DEVICE)) for _ in range(5)))
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    assert len(set(tokens_of(apple))) == 2
    assert len(apple.requests) == 11


async def test_a_new_token_that_has_expired_is_not_replaced_over_and_over(
    opens: Opener, apple: Http2Peer
) -> None:
    apple.faults += [refuse(403, "ExpiredProviderToken")] * 20
    async with opens(apple.url) as sender:
        outcomes = [await sender.send(make_outgoing(DEVICE)) for _ in range(10)]
    assert {type(outcome) for outcome in outcomes} == {Retry}
    assert (len(apple.requests), len(set(tokens_of(apple)))) == (10, 1)


ANSWERED: list[tuple[Reply, type[Outcome], str, float | None]] = [
    (refuse(400, "BadDeviceToken"), Gone, "400 BadDeviceToken", None),
    (refuse(400, "DeviceTokenNotForTopic"), Rejected, "400 DeviceTokenNotForTopic", None),
    (refuse(400, "TopicDisallowed"), Misconfigured, "400 TopicDisallowed", None),
    (refuse(400, "BadPriority"), Rejected, "400 BadPriority", None),
    (refuse(400, "SomethingNew"), Rejected, "400 SomethingNew", None),
    (refuse(403, "InvalidProviderToken"), Misconfigured, "403 InvalidProviderToken", None),
    (refuse(403, "BadEnvironmentKeyInToken"), Misconfigured, "403 BadEnvironmentKeyInToken", None),
    (refuse(404, "BadPath"), Misconfigured, "404 BadPath", None),
    (refuse(405, "MethodNotAllowed"), Misconfigured, "405 MethodNotAllowed", None),
    (refuse(410, "Unregistered", timestamp=NOW), Gone, "410 Unregistered", None),
    (refuse(410, "ExpiredToken"), Gone, "410 ExpiredToken", None),
    (refuse(413, "PayloadTooLarge"), Rejected, "413 PayloadTooLarge", None),
    (refuse(429, "TooManyRequests"), Retry, "429 TooManyRequests", None),
    (refuse(429, "TooManyProviderTokenUpdates"), Retry, "429 TooManyProviderTokenUpdates", 1200),
    (refuse(500, "InternalServerError"), Retry, "500 InternalServerError", 900),
    (refuse(503, "Shutdown"), Retry, "503 Shutdown", 900),
    (Reply(status=502, body=b"<html>"), Retry, "502", 900),
    (Reply(status=429, headers={"retry-after": "7"}), Retry, "429", 7),
    (Reply(status=503, headers={"retry-after": "99999999"}), Retry, "503", 3600),
    (Reply(status=307, headers={"location": "/elsewhere"}), Retry, "307", None),
    (Reply(status=404, body=b"<html>"), Retry, "404", None),
    (Reply(status=410), Gone, "410", None),
    (Reply(status=400, body=b'{"reason":' + b"[" * 9000), Retry, "400", None),
    (Reply(status=400, body=b'{"reason":"two\\nlines"}'), Retry, "400", None),
]


@pytest.mark.parametrize(
    ("reply", "outcome", "code", "after_s"), ANSWERED, ids=[each[2] for each in ANSWERED]
)
async def test_an_answer_has_its_outcome(
    opens: Opener,
    apple: Http2Peer,
    *,
    reply: Reply,
    outcome: type[Outcome],
    code: str,
    after_s: float | None,
) -> None:
    apple.faults.append(reply)
    found = await send(opens, apple)
    assert isinstance(found, Failure)
    assert (type(found), found.error_code) == (outcome, code)
    assert getattr(found, "after_s", None) == after_s
    assert len(apple.requests) == 1


async def test_it_is_said_since_when_a_token_is_gone(opens: Opener, apple: Http2Peer) -> None:
    apple.faults.append(refuse(410, "Unregistered", timestamp=NOW))
    apple.faults.append(refuse(410, "Unregistered", timestamp=1 << 62))
    found = [await send(opens, apple) for _ in range(2)]
    texts = [each.error_message for each in found if isinstance(each, Gone)]
    assert texts == ["Unregistered since 2026-01-01T00:00:00.000Z", "Unregistered"]


REASONS = """
BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic
DeviceTokenNotForTopic DuplicateHeaders IdleTimeout InvalidPushType MissingDeviceToken
MissingTopic PayloadEmpty TopicDisallowed BadCertificate BadCertificateEnvironment
ExpiredProviderToken Forbidden InvalidProviderToken MissingProviderToken UnrelatedKeyIdInToken
BadEnvironmentKeyIdInToken BadPath MethodNotAllowed ExpiredToken Unregistered
TooManyProviderTokenUpdates
"""


def test_every_reason_of_apple_has_a_row() -> None:
    named = {row.code.split(" ")[1] for row in ANSWERS.rows if " " in row.code}
    statuses = {row.code for row in ANSWERS.rows}
    assert set(REASONS.split()) - named == set()
    assert {"200", "410", "413", "429", "5xx"} <= statuses


@pytest.mark.parametrize("token", ["", "a", "../v1/keys", "ab?x=1", "ab" * 32 + "\n", "zz"])
async def test_a_token_that_is_not_hexadecimal_is_gone_and_not_sent(
    opens: Opener, apple: Http2Peer, token: str
) -> None:
    async with opens(apple.url) as sender:
        assert isinstance(await sender.send(make_outgoing(token)), Gone)
    assert apple.requests == []


@pytest.mark.parametrize("fault", [Fault.SILENCE, Fault.RESET], ids=lambda fault: fault.name)
async def test_what_was_handed_over_and_not_answered_is_unknown(
    opens: Opener, apple: Http2Peer, fault: Fault
) -> None:
    apple.faults.append(fault)
    async with opens(apple.url, timeout_s=fault.wait_s) as sender:
        found = await sender.send(make_outgoing(DEVICE))
        assert (type(found), found.error_code) == (Unknown, "no_answer")
        assert len(apple.requests) == 1
        assert isinstance(await sender.send(make_outgoing(DEVICE)), Delivered)
    first, second = (request.headers["apns-id"] for request in apple.requests)
    assert first == second


BROKEN = [Fault.RESET_STREAM, Fault.HALF_REPLY, Fault.SLOW]


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)
async def test_of_an_answer_that_breaks_off_the_status_counts(
    opens: Opener, apple: Http2Peer, fault: Fault
) -> None:
    apple.faults.append(fault)
    assert isinstance(await send(opens, apple, timeout_s=fault.wait_s), Delivered)
    assert len(apple.requests) == 1


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)
@pytest.mark.parametrize("status", [400, 403, 404])
async def test_a_refusal_that_breaks_off_is_retried(
    opens: Opener, apple: Http2Peer, fault: Fault, status: int
) -> None:
    apple.faults.append(fault)
    apple.broken_status = status
    assert isinstance(await send(opens, apple, timeout_s=fault.wait_s), Retry)


async def test_a_message_that_hangs_does_not_hold_up_the_others(
    opens: Opener, apple: Http2Peer
) -> None:
    apple.faults += [Fault.SILENCE, Fault.SILENCE]
    async with opens(apple.url, timeout_s=BRIEFLY_S) as sender:
        hanging = [asyncio.create_task(sender.send(make_outgoing(DEVICE))) for _ in range(2)]
        while len(apple.requests) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        quick = await asyncio.gather(*(sender.send(make_outgoing(DEVICE)) for _ in range(20)))
        assert not any(task.done() for task in hanging)
        assert {type(outcome) for outcome in quick} == {Delivered}
        assert {type(outcome) for outcome in await asyncio.gather(*hanging)} == {Unknown}


async def test_what_a_closing_connection_did_not_take_is_sent_by_another(
    opens: Opener, apple: Http2Peer
) -> None:
    async with opens(apple.url) as sender:
        await sender.send(make_outgoing(DEVICE))
        apple.faults.append(Fault.GO_AWAY)
        assert isinstance(await sender.send(make_outgoing(DEVICE)), Delivered)
    assert [request.connection for request in apple.requests] == [1, 1, 2]
    assert len({request.headers["apns-id"] for request in apple.requests}) == 1


# Apple allows a new connection one stream, until it has accepted the token.
async def test_what_is_refused_for_too_many_streams_is_sent_again(
    opens: Opener, apple: Http2Peer
) -> None:
    apple.faults += [Fault.REFUSED_STREAM] * 10
    async with opens(apple.url) as sender:
        outcomes = await asyncio.gather(*(sender.send(make_outgoing(DEVICE)) for _ in range(20)))
    assert {type(outcome) for outcome in outcomes} == {Delivered}


@pytest.mark.parametrize("fault", [Fault.GO_AWAY, Fault.REFUSED_STREAM], ids=lambda each: each.name)
async def test_if_every_connection_refuses_nothing_was_handed_over(
    opens: Opener, apple: Http2Peer, fault: Fault
) -> None:
    apple.always = fault
    assert isinstance(await send(opens, apple, timeout_s=fault.wait_s), Retry)


async def test_without_a_server_nothing_was_handed_over(opens: Opener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with opens(f"https://127.0.0.1:{port}") as sender:
        found = await sender.send(make_outgoing(DEVICE))
    assert (type(found), found.error_code) == (Retry, "not_connected")


async def test_a_server_that_does_not_greet_was_handed_nothing(opens: Opener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with opens(f"https://127.0.0.1:{port}", timeout_s=BRIEFLY_S) as sender:
            found = await sender.send(make_outgoing(DEVICE))
    assert (type(found), found.error_code) == (Retry, "not_connected")


@pytest.mark.parametrize("is_trusted", [True, False], ids=["expired", "untrusted"])
async def test_a_certificate_that_is_not_valid_is_given_nothing(
    opens: Opener, authority: Authority, tmp_path: Path, *, is_trusted: bool
) -> None:
    signing = authority if is_trusted else Authority.create(tmp_path)
    tls = signing.server_context(["h2"], expired=is_trusted)
    async with Http2Peer(accept).serving(tls) as peer:
        found = await send(opens, peer)
        assert isinstance(found, Retry)
        assert found.error_code == "not_connected"
        assert peer.requests == []


async def test_a_private_address_is_not_called(
    authority: Authority, apple: Http2Peer, clock: FixedClock
) -> None:
    http = open_http(is_loopback_allowed=False)
    async with opened(apple.url, authority, http, clock) as sender:
        found = await sender.send(make_outgoing(DEVICE))
    assert isinstance(found, Retry)
    assert (found.error_code, apple.connections) == ("target_refused", 0)


async def test_authorities_that_vanished_are_no_reason_to_disable(
    opens: Opener, authority: Authority, apple: Http2Peer, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.ca_path.read_bytes())
    async with opens(apple.url, ca_path=str(path)) as sender:
        path.unlink()
        found = await sender.send(make_outgoing(DEVICE))
    assert (type(found), found.error_code) == (Retry, "not_connected")
    assert str(path) not in found.error_message


def faults_of(key: str = "", **changes: object) -> list[tuple[str, str]]:
    settings = msgspec.convert(SETTINGS | changes, ApnsSettings)
    found = APNS.find_faults(settings, ApnsSecrets(key or pem(KEY)))
    return [(fault.field, fault.reason) for fault in found]


def test_good_settings_have_no_fault(authority: Authority) -> None:
    assert faults_of() == []
    assert faults_of(base_url="https://[::1]:2197", ca_path=str(authority.ca_path)) == []


@pytest.mark.parametrize(
    "key",
    [
        "x",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(ed25519.Ed25519PrivateKey.generate()),
        KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        ).decode(),
    ],
    ids=["text", "broken", "P-384", "Ed25519", "encrypted"],
)
def test_a_key_must_be_one_of_apple(key: str) -> None:
    assert [field for field, _ in faults_of(key)] == ["secrets.key"]


@pytest.mark.parametrize(
    "url",
    [
        "http://api.push.apple.com",
        "https://a.example/path",
        "https://a.example?x",
        "https://user:password@a.example",
        "https://",
        "https://a.example\r\nx: y",
        "https://[",
        "ftp://a.example",
        "x",
        "https://a.example:25",
    ],
)
def test_a_base_url_is_an_origin_with_tls(url: str) -> None:
    assert [field for field, _ in faults_of(base_url=url)] == ["settings.base_url"]


def test_a_file_that_is_no_authority_is_a_fault(tmp_path: Path) -> None:
    assert faults_of(ca_path=str(tmp_path / "missing")) == [("settings.ca_path", CA_FAULT)]


@pytest.mark.parametrize(
    "changes",
    [{"team_id": "short"}, {"key_id": "KEY000000\n"}, {"topic": "app"}, {"topic": "a.b\r\nx: y"}],
)
def test_ids_have_their_form(changes: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(SETTINGS | changes, ApnsSettings)


def test_a_secret_is_not_shown() -> None:
    assert "BEGIN" not in repr(ApnsSecrets(pem(KEY)))
