"""Web Push: what a push service on loopback gets, and what follows from its answers."""

import asyncio
import datetime as dt
import json
import socket
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import jwt
import pytest

from clarion.catalog.model import Channel, Priority
from clarion.channels.http_clients import HttpAnswer, HttpClients, ProviderRequest
from clarion.channels.model import (
    Address,
    Configuration,
    Delivered,
    Failure,
    Gone,
    Outcome,
    OutgoingMessage,
    Rejected,
    Retry,
    Unknown,
)
from clarion.channels.port import SenderContext
from clarion.channels.targets import Targets
from clarion.channels.web_push import (
    ANSWERS,
    WEB_PUSH,
    VapidTokens,
    WebPushSecrets,
    WebPushSender,
    WebPushSettings,
    make_payload,
    shorten,
)
from clarion.channels.web_push_encryption import PLAIN_LIMIT_BYTES
from clarion.history.model import Content
from clarion.http.certificates import DevelopmentTls
from clarion.push.model.vapid import origin_of, read_public_key
from tests.factories import DAY, NOW, FixedClock, make_user
from tests.pipeline import make_event, make_notification
from tests.unit.channels.h2_push_service import serving_h2
from tests.unit.channels.push_service import Fault, PushService, serving
from tests.web_push import Browser

# That of the test vector of RFC 8291.
SECRETS = {"private_key": "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"}
SUBJECT = "mailto:ops@example.com"
LOOPBACK = Targets(allowed=[ip_network("127.0.0.0/8")])
TIMEOUT_S = 1.0


def make_message(
    address: str,
    *,
    body: str = "Your order is here 📦",
    subject: str | None = "Grüße",
    expires_at: int | None = None,
    **content: Any,
) -> OutgoingMessage:
    event = make_event(content=Content(**content))
    priority = Priority.HIGH
    return OutgoingMessage(
        id="n1/push/d1",
        notification=make_notification(
            event, priority=priority, content=event.content, expires_at=expires_at
        ),
        user=make_user(),
        address=Address("d1", address, "web"),
        subject=subject,
        body=body,
        count=1,
        attempt=1,
    )


def open_sender(clients: HttpClients, timeout_s: float = TIMEOUT_S) -> WebPushSender:
    config = Configuration(
        app_id="app",
        channel=Channel.PUSH,
        name="webpush",
        settings=WebPushSettings(SUBJECT),
        secrets=WebPushSecrets(**SECRETS),
        timeout_s=timeout_s,
        concurrency=32,
    )
    return WebPushSender(config, SenderContext(clock=FixedClock(), http=clients, public_url=""))


@pytest.fixture
async def service() -> AsyncIterator[PushService]:
    async with serving() as running:
        yield running


@pytest.fixture
async def sender() -> AsyncIterator[WebPushSender]:
    clients = HttpClients(LOOPBACK)
    yield open_sender(clients)
    await clients.close()


@pytest.fixture
def browser() -> Browser:
    return Browser()


async def send(
    sender: WebPushSender, service: PushService, browser: Browser, **changes: Any
) -> Outcome:
    return await sender.send(make_message(browser.subscription(service.url()), **changes))


async def test_a_browser_can_decrypt_what_it_gets(
    sender: WebPushSender, service: PushService, browser: Browser
) -> None:
    outcome = await send(sender, service, browser, deeplink="app://order/1", image_url="https://i")
    (got,) = service.received
    assert outcome == Delivered(response="201")
    shown = json.loads(browser.decrypt(got.body))
    assert (shown["title"], shown["body"]) == ("Grüße", "Your order is here 📦")
    assert (shown["deeplink"], shown["image_url"]) == ("app://order/1", "https://i")
    assert (shown["id"], shown["type"]) == ("n1/push/d1", "comment")
    assert {"notification_id", "event_id"} < set(shown)
    assert got.headers["content-encoding"] == "aes128gcm"
    assert (got.headers["ttl"], got.headers["urgency"]) == ("2419200", "high")
    assert "topic" not in got.headers


async def test_the_token_is_for_the_origin_and_signed_by_the_public_key(
    sender: WebPushSender, service: PushService, browser: Browser
) -> None:
    await send(sender, service, browser)
    scheme, token, key = service.received[0].headers["authorization"].split(" ")
    public_key = WEB_PUSH.describe(WebPushSettings(SUBJECT), WebPushSecrets(**SECRETS))
    assert (scheme, key) == ("vapid", f"k={public_key['public_key']}")
    assert len(key) == len("k=") + 87
    claims = jwt.decode(
        token.removeprefix("t=").rstrip(","),
        read_public_key(key.removeprefix("k=")),
        algorithms=["ES256"],
        audience=f"http://127.0.0.1:{service.port}",
        options={"verify_exp": False},
    )
    assert claims["sub"] == SUBJECT
    assert 0 < claims["exp"] - NOW // 1000 <= 24 * 3600


def test_a_token_is_cached_for_its_origin_and_renewed_in_time() -> None:
    tokens = VapidTokens(SECRETS["private_key"], SUBJECT)
    first = tokens.get("https://push.example/a", NOW)
    assert tokens.get("https://push.example/b", NOW + DAY // 4) == first
    assert tokens.get("https://other.example/a", NOW) != first
    assert tokens.get("https://push.example/a", NOW + DAY // 3) != first


def test_a_clock_that_is_set_back_leaves_no_token_that_lives_too_long() -> None:
    tokens = VapidTokens(SECRETS["private_key"], SUBJECT)
    first = tokens.get("https://push.example/a", NOW + DAY)
    assert tokens.get("https://push.example/a", NOW) != first


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://push.example/a/b?c", "https://push.example"),
        ("https://push.example:443/a", "https://push.example"),
        ("https://push.example:8443/a", "https://push.example:8443"),
        ("http://127.0.0.1:80/a", "http://127.0.0.1"),
        ("https://[2001:db8::1]:8443/a", "https://[2001:db8::1]:8443"),
    ],
)
def test_the_origin_has_the_port_if_it_is_not_the_default(url: str, origin: str) -> None:
    assert origin_of(url) == origin


async def test_expiry_and_collapse_key_are_taken_over(
    sender: WebPushSender, service: PushService, browser: Browser
) -> None:
    await send(sender, service, browser, expires_at=NOW + 90_500, collapse_key="order 1")
    await send(sender, service, browser, expires_at=NOW - 1, collapse_key="order 1")
    await send(sender, service, browser, expires_at=NOW + 90 * DAY, collapse_key="order 2")
    headers = [each.headers for each in service.received]
    assert [each["ttl"] for each in headers] == ["90", "0", "2419200"]
    topics = [each["topic"] for each in headers]
    assert topics[0] == topics[1] != topics[2]
    assert {len(each) for each in topics} == {32}


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x00", '"', "\u2028"])
def test_a_long_text_is_cut_to_what_fits(character: str) -> None:
    message = make_message(
        "", body=character * 9_000, subject=character * 9_000, deeplink="d" * 2048
    )
    payload = make_payload(message)
    assert PLAIN_LIMIT_BYTES - 20 < len(payload) <= PLAIN_LIMIT_BYTES
    shown = json.loads(payload)
    assert shown["body"].endswith("…")
    assert shown["title"].endswith("…")
    assert shown["deeplink"] == "d" * 2048


def test_an_image_that_leaves_no_room_for_the_text_is_left_out() -> None:
    message = make_message("", body="x" * 9_000, deeplink="d" * 2048, image_url="i" * 2048)
    payload = make_payload(message)
    assert "image_url" not in json.loads(payload)
    assert len(payload) <= PLAIN_LIMIT_BYTES


@pytest.mark.parametrize("limit", range(8))
def test_a_text_is_never_longer_than_its_limit(limit: int) -> None:
    for text in ("", "ab", "éé", '""""', "\x00\x00", "x" * 9):
        assert len(json.dumps(shorten(text, limit), ensure_ascii=False).encode()) - 2 <= limit


# What the service does, and what follows. The first column is what the table has a row for.
STATUSES: list[tuple[int, type[Outcome]]] = [
    (200, Delivered),
    (201, Delivered),
    (202, Delivered),
    (204, Delivered),
    (301, Rejected),
    (400, Rejected),
    (401, Rejected),
    (403, Rejected),
    (404, Gone),
    (406, Rejected),
    (408, Retry),
    (410, Gone),
    (413, Rejected),
    (429, Retry),
    (500, Retry),
    (502, Retry),
    (503, Retry),
]


@pytest.mark.parametrize(("status", "expected"), STATUSES)
async def test_a_status_has_its_outcome(
    sender: WebPushSender,
    service: PushService,
    browser: Browser,
    status: int,
    expected: type[Outcome],
) -> None:
    service.status = status
    service.headers = {"location": service.url("/other")} if status == 301 else {}
    outcome = await send(sender, service, browser)
    assert isinstance(outcome, expected)
    assert len(service.received) == 1  # a redirect is not followed


@pytest.mark.parametrize(
    ("header", "after_s"),
    [("7", 7.0), ("99999999", 3600.0), ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0), ("soon", None)],
)
async def test_retry_after_is_honoured(
    sender: WebPushSender, service: PushService, browser: Browser, header: str, after_s: float
) -> None:
    service.status, service.headers = 429, {"retry-after": header}
    outcome = await send(sender, service, browser)
    assert isinstance(outcome, Retry)
    assert outcome.after_s == after_s


@pytest.mark.parametrize("fault", Fault)
async def test_a_message_that_may_have_arrived_is_sent_again_by_the_same_provider(
    sender: WebPushSender, service: PushService, browser: Browser, fault: Fault
) -> None:
    service.fault = fault
    outcome = await send(sender, service, browser)
    assert isinstance(outcome, Unknown)
    assert outcome.error_code == "no_answer"


async def test_a_service_that_refuses_connections_is_tried_later(
    sender: WebPushSender, browser: Browser
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/push/x"
        outcome = await sender.send(make_message(browser.subscription(url)))
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "not_connected"


async def test_a_certificate_that_is_not_valid_is_no_connection(
    sender: WebPushSender, browser: Browser, tmp_path: Path
) -> None:
    expired = DevelopmentTls(tmp_path)
    expired.ensure(dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(expired.certificate, expired.key)
    async with serving(context) as service:
        outcome = await send(sender, service, browser)
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "not_connected"
    assert service.received == []


class TrustingClients(HttpClients):
    """Trusts a certificate of the test, as the machine trusts those of the push services."""

    def __init__(self, ca_path: Path) -> None:
        super().__init__(LOOPBACK)
        self._ca_path = str(ca_path)

    async def post(self, request: ProviderRequest) -> HttpAnswer:
        return await super().post(request._replace(ca_path=self._ca_path))


async def test_messages_share_a_connection_over_http_2(browser: Browser, tmp_path: Path) -> None:
    async with serving_h2(tmp_path) as service:
        clients = TrustingClients(service.ca_path)
        sender = open_sender(clients, timeout_s=10)
        message = make_message(browser.subscription(service.url))
        first = await sender.send(message)
        others = await asyncio.gather(*(sender.send(message) for _ in range(20)))
        await clients.close()
    assert {first, *others} == {Delivered(response="201")}
    assert service.connections == 1
    assert len({browser.decrypt(body) for body in service.bodies}) == 1


async def test_a_connection_that_goes_away_is_replaced(browser: Browser, tmp_path: Path) -> None:
    async with serving_h2(tmp_path) as service:
        clients = TrustingClients(service.ca_path)
        sender = open_sender(clients, timeout_s=10)
        message = make_message(browser.subscription(service.url))
        service.goes_away = True
        taken = await sender.send(message)
        service.goes_away = False
        again = await sender.send(message)
        await clients.close()
    assert isinstance(taken, Unknown)
    assert again == Delivered(response="201")
    ids = [json.loads(browser.decrypt(body))["id"] for body in service.bodies]
    assert ids == [message.id, message.id]


async def test_no_endpoint_leads_into_the_private_network(
    service: PushService, browser: Browser
) -> None:
    clients = HttpClients(Targets())
    outcome = await send(open_sender(clients), service, browser)
    await clients.close()
    assert isinstance(outcome, Rejected)
    assert outcome.error_code == "target_refused"
    assert service.received == []


async def test_an_address_that_is_no_subscription_is_rejected(sender: WebPushSender) -> None:
    outcome = await sender.send(make_message('{"endpoint": "https://push.example"}'))
    assert isinstance(outcome, Rejected)
    assert outcome.error_code == "bad_subscription"


async def test_no_capability_and_no_control_character_is_in_the_message_of_an_error(
    sender: WebPushSender, service: PushService, browser: Browser
) -> None:
    service.status, service.text = 400, f"no\r\n\x1b[2J {service.url()} " + "x" * 9_000
    outcome = await send(sender, service, browser)
    assert isinstance(outcome, Failure)
    assert "secret-capability" not in outcome.error_message
    assert outcome.error_message.isprintable()
    assert len(outcome.error_message) < 400


async def test_one_service_that_hangs_does_not_hold_up_another(
    sender: WebPushSender, service: PushService, browser: Browser
) -> None:
    service.fault = Fault.HANG
    async with serving() as other:
        hanging = asyncio.create_task(send(sender, service, browser))
        assert isinstance(await send(sender, other, browser), Delivered)
        assert not hanging.done()
        assert isinstance(await hanging, Unknown)


def test_the_table_names_every_answer_once() -> None:
    codes = [row.code for row in ANSWERS.rows]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("subject", "private_key", "faulty"),
    [
        ("mailto:a@b.example", "", []),
        ("https://example.com/contact", SECRETS["private_key"], []),
        ("a@b.example", "", ["settings.subject"]),
        ("mailto:a@b\r\nX: y", "", ["settings.subject"]),
        ("https://" + "x" * 400, "short", ["settings.subject", "secrets.private_key"]),
        ("mailto:a@b.example", "A" * 43, ["secrets.private_key"]),
        ("mailto:a@b.example", "not base64!", ["secrets.private_key"]),
    ],
)
def test_what_is_wrong_is_said_by_field(subject: str, private_key: str, faulty: list[str]) -> None:
    found = WEB_PUSH.find_faults(WebPushSettings(subject), WebPushSecrets(private_key))
    assert [each.field for each in found] == faulty


def test_a_key_is_made_once() -> None:
    made = WEB_PUSH.complete({})
    assert WEB_PUSH.complete(made) == made
    assert WEB_PUSH.complete({}) != made
    assert WEB_PUSH.rotate(made, {}, NOW) == made
