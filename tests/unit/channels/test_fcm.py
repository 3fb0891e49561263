"""The sender for FCM, against a stand-in that checks tokens and messages, or answers badly."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from clarion.catalog.model import Priority
from clarion.channels.fcm import FCM, FcmSecrets, FcmSettings
from clarion.channels.google_tokens import load_rsa_key
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
from clarion.clock import Clock, SystemClock
from clarion.history.model import Content
from tests.factories import MINUTE, FixedClock
from tests.outgoing import make_context, make_outgoing, open_http, open_sender
from tests.peers.authority import Authority
from tests.peers.fcm import (
    PROJECT,
    FcmPeer,
    check_message,
    make_key,
    pem_of,
    refuse,
    refuse_token,
)
from tests.peers.http2 import BRIEFLY_S, LONG_S, Fault, Http2Peer, Reply, Request
from tests.stopwatch import count_units

DEVICE = "cKq:APA91bH_device-token"
KEY = make_key()
OTHER_KEY = make_key()
SMALL_KEY = rsa.generate_private_key(65537, 1024)  # noqa: S505


@pytest.fixture
async def google(authority: Authority) -> AsyncIterator[FcmPeer]:
    peer = FcmPeer(KEY)
    async with peer.http.serving(authority.server_context(["h2"])):
        yield peer


@pytest.fixture
def clock() -> FixedClock:
    """Stands still at this moment: the stand-in checks times."""
    return FixedClock(SystemClock().now())


@asynccontextmanager
async def opened(
    peer: FcmPeer, authority: Authority, http: HttpClients, clock: Clock, **changes: Any
) -> AsyncIterator[Sender]:
    """Open the sender; changes are those of settings, of the `account`, or `timeout_s`."""
    timeout_s, account = changes.pop("timeout_s", 10.0), changes.pop("account", {})
    ca_path = str(authority.ca_path)
    settings = {"project_id": PROJECT, "base_url": peer.http.url, "ca_path": ca_path} | changes
    secrets: dict[str, object] = {"service_account": peer.service_account(**account)}
    sender = open_sender(FCM, make_context(http, clock), settings, secrets, timeout_s)
    try:
        yield sender
    finally:
        await sender.close()


Opener = Callable[..., Any]


@pytest.fixture
def opens(authority: Authority, http: HttpClients, clock: FixedClock) -> Opener:
    return lambda peer, **changes: opened(peer, authority, http, clock, **changes)


async def send(opens: Opener, peer: FcmPeer, **changes: Any) -> Outcome:
    async with opens(peer, **changes) as sender:
        outcome: Outcome = await sender.send(make_outgoing(DEVICE))
        return outcome


def paths_of(peer: FcmPeer) -> list[str]:
    return [request.path.rpartition("/")[2] for request in peer.http.requests]


async def test_a_message_says_everything(opens: Opener, google: FcmPeer, clock: FixedClock) -> None:
    message = make_outgoing(
        DEVICE,
        count=2,
        content=Content(
            data={"order": 7, "text": "hé"},
            deeplink="app://orders/7",
            image_url="https://img.example/7.png",
            collapse_key="order 7",
        ),
        priority=Priority.HIGH,
        expires_at=clock.now() + 90 * MINUTE + 1,
    )
    async with opens(google) as sender:
        outcome = await sender.send(message)
    assert outcome == Delivered(response=f"200 projects/{PROJECT}/messages/0:1")
    (sent,) = google.messages
    collapse = sent["android"].pop("collapse_key")
    assert json.loads(sent["data"].pop("data")) == {"order": 7, "text": "hé"}
    assert sent == {
        "token": DEVICE,
        "notification": {
            "title": "Bo",
            "body": "said something",
            "image": "https://img.example/7.png",
        },
        "data": {
            "notification_id": message.notification.id,
            "event_id": message.notification.event_id,
            "type": "comment",
            "category": "social",
            "deeplink": "app://orders/7",
            "count": "2",
        },
        "android": {
            "priority": "HIGH",
            "ttl": "5400s",
            "notification": {"tag": collapse, "sound": "default"},
        },
    }


@pytest.mark.parametrize(
    ("expires_in", "ttl"), [(None, None), (-MINUTE, "0s"), (10**12, "2419200s")]
)
async def test_the_time_to_live_is_within_the_limits_of_fcm(
    opens: Opener, google: FcmPeer, clock: FixedClock, expires_in: int | None, ttl: str | None
) -> None:
    expires_at = None if expires_in is None else clock.now() + expires_in
    async with opens(google) as sender:
        await sender.send(make_outgoing(DEVICE, expires_at=expires_at, priority=Priority.LOW))
    assert google.messages[0]["android"].get("ttl") == ttl
    assert google.messages[0]["android"]["priority"] == "NORMAL"


async def test_a_large_message_is_shortened(opens: Opener, google: FcmPeer) -> None:
    content = Content(data={"text": "x" * 9000})
    async with opens(google) as sender:
        await sender.send(make_outgoing(DEVICE, body="ü" * 9000, content=content))
    (sent,) = google.messages
    check_message(sent)
    assert (sent["data"]["truncated"], "data" in sent["data"]) == ("true", False)
    assert len(sent["notification"]["body"]) > 1700


async def test_many_messages_share_one_access_token(opens: Opener, google: FcmPeer) -> None:
    async with opens(google) as sender:
        outcomes = await asyncio.gather(*(sender.send(make_outgoing(DEVICE)) for _ in range(100)))
    assert {type(outcome) for outcome in outcomes} == {Delivered}
    assert (len(google.issued), len(google.messages)) == (1, 100)


async def test_a_token_is_renewed_before_it_expires(
    opens: Opener, google: FcmPeer, clock: FixedClock
) -> None:
    counts = []
    async with opens(google) as sender:
        for minutes in (0, 54, 2, 54, 2):
            # Only the reading of the monotonic clock counts.
            clock.advance(minutes * MINUTE)
            clock.step(-minutes * MINUTE)
            await sender.send(make_outgoing(DEVICE))
            counts.append(len(google.issued))
    assert counts == [1, 1, 2, 2, 3]


async def test_a_token_of_a_short_life_is_used_for_half_of_it(
    opens: Opener, google: FcmPeer, clock: FixedClock
) -> None:
    google.expires_in = 60
    async with opens(google) as sender:
        for _ in range(4):
            await sender.send(make_outgoing(DEVICE))
            clock.advance(20_000)
    assert len(google.issued) == 2


async def test_whoever_is_cancelled_leaves_the_exchange_to_the_others(
    opens: Opener, google: FcmPeer
) -> None:
    google.http.faults.append(Fault.SILENCE)
    async with opens(google, timeout_s=BRIEFLY_S) as sender:
        first = asyncio.create_task(sender.send(make_outgoing(DEVICE)))
        second = asyncio.create_task(sender.send(make_outgoing(DEVICE)))
        while not google.http.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        first.cancel()
        outcome = await second
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "token no_answer"
    assert len(google.http.requests) == 1


async def test_a_sender_that_is_closed_ends_its_exchange(opens: Opener, google: FcmPeer) -> None:
    google.http.faults.append(Fault.SILENCE)
    async with opens(google) as sender:
        waiting = asyncio.create_task(sender.send(make_outgoing(DEVICE)))
        while not google.http.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert isinstance(await waiting, Retry)


async def test_a_token_that_was_revoked_is_renewed_once_for_all(
    opens: Opener, google: FcmPeer
) -> None:
    async with opens(google) as sender:
        await sender.send(make_outgoing(DEVICE))
        google.revoke()
        outcomes = await asyncio.gather(*(sender.send(make_outgoing(DEVICE)) for _ in range(20)))
    assert {type(outcome) for outcome in outcomes} == {Delivered}
    assert len(google.issued) == 2


async def test_if_a_new_token_is_refused_too_the_provider_is_misconfigured(
    opens: Opener, google: FcmPeer
) -> None:
    google.answers[DEVICE] = refuse(401, "UNAUTHENTICATED")
    found = await send(opens, google)
    assert isinstance(found, Misconfigured)
    assert found.error_code == "UNAUTHENTICATED"
    assert paths_of(google) == ["token", "messages:send"] * 2


WITH_TIME = {"retry_after": "7"}
ANSWERED: list[tuple[Reply, type[Outcome], str, float | None]] = [
    (refuse(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), Rejected, "INVALID_ARGUMENT", None),
    (refuse(400, "INVALID_ARGUMENT"), Rejected, "INVALID_ARGUMENT", None),
    (refuse(404, "NOT_FOUND", "UNREGISTERED"), Gone, "UNREGISTERED", None),
    (refuse(404, "NOT_FOUND"), Rejected, "NOT_FOUND", None),
    (Reply(status=404, body=b"<html>"), Retry, "404", None),
    (
        refuse(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"),
        Rejected,
        "SENDER_ID_MISMATCH",
        None,
    ),
    (refuse(403, "PERMISSION_DENIED"), Misconfigured, "PERMISSION_DENIED", None),
    (
        refuse(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"),
        Rejected,
        "THIRD_PARTY_AUTH_ERROR",
        None,
    ),
    (
        refuse(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", **WITH_TIME),
        Retry,
        "QUOTA_EXCEEDED",
        7,
    ),
    (refuse(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), Retry, "QUOTA_EXCEEDED", 60),
    (refuse(503, "UNAVAILABLE", "UNAVAILABLE", **WITH_TIME), Retry, "UNAVAILABLE", 7),
    (refuse(500, "INTERNAL", "INTERNAL"), Retry, "INTERNAL", None),
    (Reply(status=502, body=b"[" * 9000), Retry, "502", None),
    (refuse(409, "SOMETHING_NEW", "ALSO_NEW"), Rejected, "ALSO_NEW", None),
    (refuse(400, "no code", "bad\ncode"), Retry, "400", None),
    (Reply(status=302, headers={"location": "/"}), Retry, "302", None),
]


@pytest.mark.parametrize(
    ("reply", "outcome", "code", "after_s"), ANSWERED, ids=[each[2] for each in ANSWERED]
)
async def test_an_answer_has_its_outcome(
    opens: Opener,
    google: FcmPeer,
    *,
    reply: Reply,
    outcome: type[Outcome],
    code: str,
    after_s: float | None,
) -> None:
    google.answers[DEVICE] = reply
    found = await send(opens, google)
    assert isinstance(found, Failure)
    assert (type(found), found.error_code) == (outcome, code)
    assert getattr(found, "after_s", None) == after_s
    assert paths_of(google) == ["token", "messages:send"]


async def test_what_a_provider_repeats_of_a_secret_is_not_stored(
    opens: Opener, google: FcmPeer
) -> None:
    text = f"bad\r\ntoken {DEVICE} and ya29.0-{'x' * 100}" + "!" * 999
    google.answers[DEVICE] = refuse(400, "INVALID_ARGUMENT", text=text)
    found = await send(opens, google)
    assert isinstance(found, Rejected)
    assert found.error_message.startswith("bad token … and …!!!")
    assert len(found.error_message) == 300


TOKEN_ANSWERED: list[tuple[Reply | Fault, type[Outcome], str, float | None]] = [
    (refuse_token(400, "invalid_grant", "no"), Misconfigured, "token invalid_grant", None),
    (refuse_token(401, "invalid_client"), Misconfigured, "token invalid_client", None),
    (Reply(status=403), Misconfigured, "token 403", None),
    (Reply(status=429, headers={"retry-after": "9"}), Retry, "token 429", 9),
    (Reply(status=503), Retry, "token 503", None),
    (Reply(body=b"{}"), Retry, "token malformed", None),
    (Reply(body=b"[" * 9000), Retry, "token malformed", None),
    (Reply(body=b'{"access_token":"a\\r\\nb"}'), Retry, "token malformed", None),
    (Reply(body=b'{"access_token":"a","expires_in":-5}'), Retry, "token malformed", None),
    (Reply(status=302, headers={"location": "/"}), Retry, "token 302", None),
    (Fault.SILENCE, Retry, "token no_answer", None),
    (Fault.RESET, Retry, "token no_answer", None),
    (Fault.RESET_STREAM, Retry, "token malformed", None),
    (Fault.HALF_REPLY, Retry, "token malformed", None),
    (Fault.SLOW, Retry, "token malformed", None),
]


# The message was not handed over, whatever happened to the request for a token.
@pytest.mark.parametrize(
    ("given", "outcome", "code", "after_s"),
    TOKEN_ANSWERED,
    ids=[each[2] for each in TOKEN_ANSWERED],
)
async def test_without_an_access_token_nothing_is_sent(
    opens: Opener,
    google: FcmPeer,
    *,
    given: Reply | Fault,
    outcome: type[Outcome],
    code: str,
    after_s: float | None,
) -> None:
    google.http.faults.append(given)
    wait_s = given.wait_s if isinstance(given, Fault) else LONG_S
    async with opens(google, timeout_s=wait_s) as sender:
        found = await sender.send(make_outgoing(DEVICE))
        assert (type(found), found.error_code) == (outcome, code)
        assert getattr(found, "after_s", None) == after_s
        assert paths_of(google) == ["token"]
        assert isinstance(await sender.send(make_outgoing(DEVICE)), Delivered)


async def test_a_wrong_clock_is_no_reason_to_disable(
    opens: Opener, google: FcmPeer, clock: FixedClock
) -> None:
    clock.step(2 * 60 * MINUTE)
    plain = await send(opens, google)
    assert isinstance(plain, Misconfigured)
    now = formatdate(time.time(), usegmt=True)
    google.http.faults.append(refuse_token(400, "invalid_grant", date=now))
    found = await send(opens, google)
    assert isinstance(found, Retry)
    assert found.error_code == "token clock"


@pytest.mark.parametrize(
    "account",
    [{"private_key": pem_of(OTHER_KEY)}, {"client_email": "x@example.com"}],
    ids=["another key", "another account"],
)
async def test_the_stand_in_refuses_who_does_not_sign_right(
    opens: Opener, google: FcmPeer, account: dict[str, str]
) -> None:
    found = await send(opens, google, account=account)
    assert isinstance(found, Misconfigured)
    assert found.error_code == "token invalid_grant"
    assert google.issued == []


async def send_after_token(opens: Opener, peer: FcmPeer, fault: Fault) -> Outcome:
    """Send a message that the fault happens to, with a token that is there already."""
    async with opens(peer, timeout_s=fault.wait_s) as sender:
        assert isinstance(await sender.send(make_outgoing(DEVICE)), Delivered)
        peer.http.faults.append(fault)
        outcome: Outcome = await sender.send(make_outgoing(DEVICE))
        return outcome


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.SILENCE, Unknown),
        (Fault.RESET, Unknown),
        (Fault.RESET_STREAM, Delivered),
        (Fault.HALF_REPLY, Delivered),
        (Fault.SLOW, Delivered),
        (Fault.GO_AWAY, Delivered),
    ],
    ids=lambda each: getattr(each, "name", None),
)
async def test_a_fault_after_the_message_was_sent_has_its_outcome(
    opens: Opener, google: FcmPeer, fault: Fault, outcome: type[Outcome]
) -> None:
    assert isinstance(await send_after_token(opens, google, fault), outcome)


@pytest.mark.parametrize("fault", [Fault.RESET_STREAM, Fault.HALF_REPLY, Fault.SLOW])
@pytest.mark.parametrize("status", [400, 403, 404])
async def test_a_refusal_that_breaks_off_neither_disables_nor_ends_a_device(
    opens: Opener, google: FcmPeer, fault: Fault, status: int
) -> None:
    google.http.broken_status = status
    assert isinstance(await send_after_token(opens, google, fault), Retry)


async def test_without_a_server_nothing_was_handed_over(opens: Opener, google: FcmPeer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"https://127.0.0.1:{port}"
        found = await send(opens, google, base_url=url, timeout_s=BRIEFLY_S)
        assert isinstance(found, Retry)
        assert found.error_code == "not_connected"
    for changes in ({"base_url": url}, {"account": {"token_uri": f"{url}/token"}}):
        found = await send(opens, google, **changes)
        assert isinstance(found, Retry)
        assert found.error_code.endswith("not_connected")


async def test_an_expired_certificate_is_given_nothing(opens: Opener, authority: Authority) -> None:
    peer = FcmPeer(KEY)
    async with peer.http.serving(authority.server_context(["h2"], expired=True)):
        found = await send(opens, peer)
    assert isinstance(found, Retry)
    assert (found.error_code, peer.http.requests) == ("token not_connected", [])


@pytest.mark.parametrize("is_token_uri", [True, False])
async def test_private_addresses_are_not_called(
    google: FcmPeer, authority: Authority, clock: FixedClock, *, is_token_uri: bool
) -> None:
    http = open_http(is_loopback_allowed=False)
    elsewhere = {"base_url": "https://push.example"} if is_token_uri else {}
    async with opened(google, authority, http, clock, **elsewhere) as sender:
        found = await sender.send(make_outgoing(DEVICE))
    assert (type(found), google.http.connections) == (Retry, 0)
    assert getattr(found, "error_code", "") == "target_refused"


def accept_all(_request: Request) -> Reply:
    return Reply(body=b"{}")


async def test_the_token_endpoint_may_be_another_server(
    opens: Opener, google: FcmPeer, authority: Authority
) -> None:
    async with Http2Peer(accept_all).serving(authority.server_context(["h2"])) as other:
        found = await send(opens, google, base_url=other.url)
    assert found == Delivered(response="200")
    assert paths_of(google) == ["token"]


def faults_of(account: object, **settings: object) -> list[str]:
    text = account if isinstance(account, str) else json.dumps(account)
    decoded = msgspec.convert({"project_id": PROJECT} | settings, FcmSettings)
    return [fault.field for fault in FCM.find_faults(decoded, FcmSecrets(text))]


ACCOUNT = {"client_email": "a@b.example", "private_key": pem_of(KEY)}


def test_what_google_gives_has_no_fault() -> None:
    assert faults_of(ACCOUNT) == []
    assert faults_of(ACCOUNT | {"private_key": pem_of(rsa.generate_private_key(65537, 4096))}) == []


@pytest.mark.parametrize(
    ("account", "field"),
    [
        ("no JSON", ""),
        ("[" * 9000, ""),
        ({}, ""),
        (ACCOUNT | {"client_email": 7}, ""),
        (ACCOUNT | {"token_uri": "http://oauth2.googleapis.com/token"}, ".token_uri"),
        (ACCOUNT | {"token_uri": "https://oauth2.googleapis.com:22/token"}, ".token_uri"),
        (ACCOUNT | {"private_key": "no PEM"}, ".private_key"),
        (ACCOUNT | {"private_key": pem_of(SMALL_KEY)}, ".private_key"),
    ],
)
def test_a_service_account_that_cannot_be_used_is_a_fault(account: object, field: str) -> None:
    assert faults_of(account) == [f"secrets.service_account{field}"]


def test_a_key_whose_parts_do_not_match_is_refused() -> None:
    one, other = KEY.private_numbers(), OTHER_KEY.private_numbers()
    mixed = rsa.RSAPrivateNumbers(
        one.p, one.q, other.d, one.dmp1, one.dmq1, one.iqmp, one.public_numbers
    )
    pem = pem_of(mixed.private_key(unsafe_skip_rsa_key_validation=True))
    with pytest.raises(ValueError, match="do not match"):
        load_rsa_key(pem)
    with pytest.raises(ValueError, match="not one for RS256"):
        load_rsa_key(pem_of(ec.generate_private_key(ec.SECP256R1())))  # type: ignore[arg-type]


@pytest.mark.timing
def test_a_key_is_checked_at_once() -> None:
    assert count_units(lambda: load_rsa_key(pem_of(KEY))) < 15


@pytest.mark.parametrize("project", ["", "a/b", "../x", "a?b", "A", "a\n"])
def test_a_project_has_its_form(project: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"project_id": project}, FcmSettings)


def test_faults_of_settings_are_found(tmp_path: Path) -> None:
    found = faults_of(ACCOUNT, base_url="http://a.example", ca_path=str(tmp_path / "missing"))
    assert found == ["settings.base_url", "settings.ca_path"]


def test_a_secret_is_not_shown() -> None:
    assert "private" not in repr(FcmSecrets(FcmPeer(KEY).service_account()))
