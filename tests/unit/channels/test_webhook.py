"""Webhooks, received with the package that the Standard Webhooks project publishes."""

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from clarion.catalog.model import Channel
from clarion.channels.answers import LONGEST_WAIT_S
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import (
    Address,
    Configuration,
    Delivered,
    Gone,
    Outcome,
    OutgoingMessage,
    Retry,
    Unknown,
)
from clarion.channels.port import Sender, SenderContext
from clarion.channels.targets import Targets
from clarion.channels.webhook import (
    ROTATION_MS,
    WEBHOOK,
    WebhookSecrets,
    WebhookSettings,
    make_secret,
    read_secret,
    sign,
)
from clarion.clock import Clock, SystemClock
from tests.factories import NOW, FixedClock, make_user
from tests.pipeline import make_event, make_notification
from tests.processes import free_port
from tests.replacing import replace
from tests.unit.channels.http_peers import (
    OK,
    Http2Script,
    Request,
    Script,
    answer,
    answering,
    black_hole,
    breaking_off,
    keep_silent,
    listening,
    serve_tls,
    speaking_http2,
    trickling,
)

ROOT = Path(__file__).resolve().parents[3]
SECRET = make_secret()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


def make_message(**changes: Any) -> OutgoingMessage:
    event = make_event()
    content = replace(event.content, deeplink="app://post/1")
    values: dict[str, Any] = {
        "id": "0190f000-0000-7000-8000-00000000000a",
        "notification": make_notification(event, content=content),
        "user": make_user(),
        "address": Address("main", ""),
        "subject": "Bo 🚀",
        "body": "said “hé”",
        "count": 1,
        "attempt": 1,
    }
    return OutgoingMessage(**values | changes)


@asynccontextmanager
async def sending(
    url: str,
    *,
    secrets: WebhookSecrets | None = None,
    clock: Clock | None = None,
    targets: Targets | None = None,
    timeout_s: float = 5.0,
) -> AsyncIterator[Sender]:
    http = HttpClients(targets or Targets([ip_network("127.0.0.0/8")]))
    configuration = Configuration(
        app_id="app",
        channel=Channel.WEBHOOK,
        name="main",
        settings=WebhookSettings(url=url),
        secrets=secrets or WebhookSecrets(secret=SECRET),
        timeout_s=timeout_s,
        concurrency=4,
    )
    context = SenderContext(clock=clock or SystemClock(), http=http, public_url="")
    sender = WEBHOOK.open(configuration, context)
    yield sender
    await sender.close()
    await http.close()


async def send_to(script: Script, **changes: Any) -> tuple[Outcome, list[Request]]:
    async with listening(script) as peer, sending(peer.url, **changes) as sender:
        return await sender.send(make_message()), peer.requests


async def test_a_receiver_verifies_and_reads_the_message() -> None:
    outcome, (request,) = await send_to(answering(OK))
    assert outcome == Delivered(response="HTTP 200")
    received = Webhook(SECRET).verify(request.body, request.headers)
    message = make_message()
    assert received == {
        "type": "notification",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "data": {
            "notification_id": received["data"]["notification_id"],
            "event_id": received["data"]["event_id"],
            "user_id": "ana",
            "type": "comment",
            "category": "social",
            "title": "Bo 🚀",
            "body": "said “hé”",
            "deeplink": "app://post/1",
            "data": {"snippet": "hé 📦"},
        },
    }
    assert request.headers["webhook-id"] == message.id
    assert request.headers["content-type"] == "application/json"


async def test_a_changed_byte_does_not_verify() -> None:
    _, (request,) = await send_to(answering(OK))
    for changed in (request.body.replace(b"Bo", b"bo"), request.body + b" "):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(changed, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body, request.headers | {"webhook-id": "another"})


async def test_every_attempt_has_the_same_id_and_body() -> None:
    message = make_message()
    async with listening(answering(answer(500), OK)) as peer, sending(peer.url) as sender:
        for attempt in (1, 2):
            await sender.send(replace(message, attempt=attempt))
    first, second = peer.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_the_reference_vector_of_standard_webhooks() -> None:
    key = read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("size", [24, 32, 33, 64])
def test_signatures_are_those_of_the_reference_package(size: int) -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(size))).decode()
    now = datetime.now(UTC).replace(microsecond=0)
    for body in ("{}", '{"a":"ü📦"}', ""):
        expected = Webhook(secret).sign("msg_1", now, body)
        key = read_secret(secret)
        assert sign(key, "msg_1", int(now.timestamp()), body.encode()) == expected


# Rotation.


async def test_both_secrets_sign_for_a_day_after_a_rotation() -> None:
    new = make_secret()
    stored = WEBHOOK.rotate({"secret": SECRET}, {"secret": new}, NOW)
    secrets = msgspec.convert(stored, WebhookSecrets)
    clock = FixedClock()
    async with (
        listening(answering(OK)) as peer,
        sending(peer.url, secrets=secrets, clock=clock) as sender,
    ):
        await sender.send(make_message())
        clock.advance(ROTATION_MS - 1)
        await sender.send(make_message())
        clock.advance(1)
        await sender.send(make_message())
    signatures = [each.headers["webhook-signature"].split(" ") for each in peer.requests]
    assert [len(each) for each in signatures] == [2, 2, 1]
    for request, given in zip(peer.requests, signatures, strict=True):
        timestamp = int(request.headers["webhook-timestamp"])
        signers = [new, SECRET][: len(given)]
        id_ = request.headers["webhook-id"]
        assert given == [sign(read_secret(each), id_, timestamp, request.body) for each in signers]


async def test_a_receiver_with_either_secret_verifies_during_a_rotation() -> None:
    new = make_secret()
    stored = WEBHOOK.rotate({"secret": SECRET}, {"secret": new}, SystemClock().now())
    secrets = msgspec.convert(stored, WebhookSecrets)
    _, (request,) = await send_to(answering(OK), secrets=secrets)
    for secret in (SECRET, new):
        assert Webhook(secret).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(make_secret()).verify(request.body, request.headers)


def test_only_another_secret_is_a_rotation() -> None:
    old = {"secret": SECRET, "previous_secret": "p", "previous_until": "7"}
    assert WEBHOOK.rotate(old, {}, NOW) == old
    assert WEBHOOK.rotate(old, {"secret": SECRET}, NOW) == old
    new = make_secret()
    until = str(NOW + ROTATION_MS)
    expected = {"secret": new, "previous_secret": SECRET, "previous_until": until}
    assert WEBHOOK.rotate(old, {"secret": new}, NOW) == expected


async def test_the_former_secret_can_end_at_once() -> None:
    new = make_secret()
    given = {"secret": new, "previous_secret": ""}
    stored = WEBHOOK.rotate({"secret": SECRET}, given, SystemClock().now())
    _, (request,) = await send_to(answering(OK), secrets=msgspec.convert(stored, WebhookSecrets))
    assert len(request.headers["webhook-signature"].split(" ")) == 1
    assert Webhook(new).verify(request.body, request.headers)


# What is put.


def test_a_secret_is_made_if_none_is_given() -> None:
    made = WEBHOOK.complete({})
    assert len(read_secret(made["secret"])) == 32
    assert made != WEBHOOK.complete({})
    assert WEBHOOK.complete({"secret": SECRET}) == {"secret": SECRET}
    assert WEBHOOK.shown_once == {"secret"}


def find_faults(url: str, **secrets: str) -> list[str]:
    given = WebhookSecrets(**{"secret": SECRET} | secrets)
    return [each.field for each in WEBHOOK.find_faults(WebhookSettings(url=url), given)]


@pytest.mark.parametrize(
    ("url", "secrets", "fields"),
    [
        ("https://example.com/hook", {}, []),
        ("http://10.0.0.1:8000/hook", {}, []),  # the operator may allow it: see `list_urls`
        ("ftp://example.com/hook", {}, ["settings.url"]),
        ("https://example.com:25/", {}, ["settings.url"]),
        ("https://example.com/", {"secret": ""}, ["secrets.secret"]),
        ("https://example.com/", {"secret": "whsec_"}, ["secrets.secret"]),
        ("https://example.com/", {"secret": SECRET.removeprefix("whsec_")}, ["secrets.secret"]),
        ("https://example.com/", {"secret": f"whsec_{'A' * 28}"}, ["secrets.secret"]),
        ("https://example.com/", {"secret": f"whsec_{'A' * 32}"}, []),
        ("https://example.com/", {"secret": f"whsec_{'A' * 88}"}, ["secrets.secret"]),
        ("https://example.com/", {"secret": f"{SECRET}\n"}, ["secrets.secret"]),
        ("https://example.com/", {"secret": f"whsec_{'é' * 40}"}, ["secrets.secret"]),
        ("https://example.com/", {"previous_secret": "x"}, ["secrets.previous_secret"]),
        ("https://example.com/", {"previous_until": "soon"}, ["secrets.previous_until"]),
        ("https://example.com/", {"previous_until": "9" * 5000}, ["secrets.previous_until"]),
    ],
)
def test_what_is_not_valid_is_named(url: str, secrets: dict[str, str], fields: list[str]) -> None:
    assert find_faults(url, **secrets) == fields


def test_the_guard_is_given_the_url() -> None:
    settings = WebhookSettings(url="http://10.0.0.1/")
    assert WEBHOOK.list_urls(settings) == {"settings.url": "http://10.0.0.1/"}


def test_types_limit_what_is_sent() -> None:
    settings = WebhookSettings(url="https://example.com/")
    assert WEBHOOK.takes(settings, "comment")
    some = WebhookSettings(url="https://example.com/", types=("comment",))
    assert WEBHOOK.takes(some, "comment")
    assert not WEBHOOK.takes(some, "like")


# T18: what follows from an answer, or from none.


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, {}, Delivered(response="HTTP 200")),
        (202, {}, Delivered(response="HTTP 202")),
        (299, {}, Delivered(response="HTTP 299")),
        (301, {"location": "http://127.0.0.1/"}, Retry),
        (304, {}, Retry),
        (400, {}, Retry),
        (401, {}, Retry),
        (404, {}, Retry),
        (410, {}, Gone),
        (422, {}, Retry),
        (429, {}, Retry),
        (500, {}, Retry),
        (503, {}, Retry),
        (599, {}, Retry),
    ],
)
async def test_the_status_decides(
    status: int, headers: dict[str, str], expected: Outcome | type[Outcome]
) -> None:
    outcome, requests = await send_to(answering(answer(status, **headers)))
    if isinstance(expected, type):
        assert outcome == expected(error_code=str(status), error_message=f"HTTP {status}")  # type: ignore[call-arg]
    else:
        assert outcome == expected
    assert len(requests) == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "after_s"),
    [
        ("7", 7.0),
        ("999999", LONGEST_WAIT_S),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
    ],
)
async def test_the_wait_that_is_asked_for_is_kept(
    status: int, value: str, after_s: float | None
) -> None:
    script = answering(answer(status, retry_after=value))
    outcome, _ = await send_to(script, clock=FixedClock())
    assert isinstance(outcome, Retry)
    assert outcome.after_s == after_s


@pytest.mark.parametrize(
    "script",
    [
        breaking_off(),
        breaking_off(b"HTTP/1.1 200 OK\r\ncont"),
        keep_silent,
        trickling(b"HTTP/1.1 200 OK\r\nx-a: "),
    ],
    ids=["reset", "half_a_head", "time_out_after_accepting", "byte_by_byte"],
)
async def test_a_request_that_may_have_arrived_is_sent_to_the_same_endpoint(
    script: Script,
) -> None:
    outcome, requests = await send_to(script, timeout_s=0.6)
    assert isinstance(outcome, Unknown)
    assert outcome.error_code == "no_answer"
    assert len(requests) == 1


@pytest.mark.parametrize("script", [breaking_off(HEAD + b"half"), trickling(HEAD)])
async def test_the_status_decides_though_the_body_breaks_off(script: Script) -> None:
    outcome, _ = await send_to(script, timeout_s=0.6)
    assert outcome == Delivered(response="HTTP 200")


async def test_a_request_that_was_not_sent_is_retried() -> None:
    with black_hole() as port:
        for url in (f"http://127.0.0.1:{free_port()}/", f"http://127.0.0.1:{port}/"):
            async with sending(url, timeout_s=0.6) as sender:
                outcome = await sender.send(make_message())
                assert isinstance(outcome, Retry)
                assert outcome.error_code == "not_connected"


async def test_an_expired_certificate_is_no_connection(tmp_path: Path) -> None:
    tls, _ = serve_tls(tmp_path, age_days=800)
    async with listening(answering(OK), tls=tls) as peer, sending(peer.url) as sender:
        outcome = await sender.send(make_message())
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "not_connected"
    assert not peer.requests


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Http2Script.answer, Delivered),
        (Http2Script.refuse, Retry),
        (Http2Script.go_away_before, Retry),
        (Http2Script.go_away_after, Unknown),
        (Http2Script.break_off, Delivered),
    ],
)
async def test_http2_tells_what_was_processed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[Http2Script, int], None],
    expected: type[Outcome],
) -> None:
    tls, ca_path = serve_tls(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", ca_path)
    async with (
        listening(speaking_http2(action), tls=tls) as peer,
        sending(peer.url) as sender,
    ):
        assert isinstance(await sender.send(make_message()), expected)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8000/", "http://localhost:8000/", "http://10.0.0.1/", "http://0x7f.1/"],
)
async def test_a_private_target_is_not_called(url: str) -> None:
    async with sending(url, targets=Targets()) as sender:
        outcome = await sender.send(make_message())
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "target_refused"


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [(200, b"server: \xdcber", Delivered), (429, b"retry-after: \xff\xfe", Retry)],
)
async def test_a_header_that_is_no_text_does_not_hide_the_status(
    status: int, header: bytes, expected: type[Outcome]
) -> None:
    reply = b"HTTP/1.1 %d X\r\n%s\r\ncontent-length: 0\r\n\r\n" % (status, header)
    outcome, _ = await send_to(answering(reply))
    assert isinstance(outcome, expected)


async def test_nothing_of_the_reply_is_shown() -> None:
    reply = b"HTTP/1.1 500 internal-detail\r\ncontent-length: 6\r\nx-a: internal\r\n\r\nsecret"
    outcome, _ = await send_to(answering(reply))
    assert outcome == Retry(error_code="500", error_message="HTTP 500")


async def test_the_longest_message_is_sent() -> None:
    event = make_event()
    content = replace(event.content, data={"text": "ä" * 32_000})
    message = make_message(notification=make_notification(event, content=content))
    async with listening(answering(OK)) as peer, sending(peer.url) as sender:
        assert isinstance(await sender.send(message), Delivered)
    (request,) = peer.requests
    assert json.loads(request.body)["data"]["data"] == content.data


@pytest.fixture
def guide(tmp_path: Path) -> tuple[Path, int]:
    """The receiver of the guide as a file, and the port on which it listens."""
    text = (ROOT / "docs/how-to/webhooks.md").read_text()
    (program,) = re.findall(r"^```python .*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    port = free_port()
    file = tmp_path / "receiver.py"
    file.write_text(program.replace("9000", str(port)))
    return file, port


async def test_the_receiver_of_the_guide_works(guide: tuple[Path, int]) -> None:
    file, port = guide
    receiver = await asyncio.create_subprocess_exec(
        sys.executable,
        str(file),
        env=os.environ | {"WEBHOOK_SECRET": SECRET},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert receiver.stdout is not None
    try:
        url = f"http://127.0.0.1:{port}/clarion"
        async with sending(url) as sender:
            async with asyncio.timeout(20):
                # Until it listens.
                while not isinstance(outcome := await sender.send(make_message()), Delivered):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert outcome.response == "HTTP 204"
        assert await receiver.stdout.readline() == b"POST /clarion HTTP/1.1\n"
        async with sending(url, secrets=WebhookSecrets(secret=make_secret())) as stranger:
            refused = await stranger.send(make_message())
        assert refused == Retry(error_code="401", error_message="HTTP 401")
    finally:
        receiver.kill()
        await receiver.communicate()
