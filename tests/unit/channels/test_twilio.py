"""The sender of text messages, against a server with Twilio's API on loopback."""

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clarion.catalog.model import Channel
from clarion.channels.answers import LONGEST_WAIT_S
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import (
    Address,
    Configuration,
    Delivered,
    Failure,
    Gone,
    Misconfigured,
    Outcome,
    OutgoingMessage,
    Rejected,
    Retry,
    Sent,
    Unknown,
)
from clarion.channels.port import Sender, SenderContext
from clarion.channels.targets import Targets
from clarion.channels.twilio import TWILIO, TwilioSecrets, TwilioSettings
from clarion.http.certificates import DevelopmentTls
from tests.factories import FixedClock, make_user
from tests.peers.twilio import ACCOUNT, TOKEN, Fault, Reply, Twilio
from tests.pipeline import make_event, make_notification

PUBLIC_URL = "https://clarion.example"
LOOPBACK = ip_network("127.0.0.0/8")


@pytest.fixture
async def twilio() -> AsyncIterator[Twilio]:
    async with Twilio() as server:
        yield server


@contextlib.asynccontextmanager
async def opened(
    url: str,
    *,
    public_url: str = PUBLIC_URL,
    timeout_s: float = 10.0,
    targets: Targets | None = None,
    token: str = TOKEN,
    **settings: str,
) -> AsyncIterator[Sender]:
    given = {"account_sid": ACCOUNT, "from": "+15005550006", "base_url": url} | settings
    configuration = Configuration(
        app_id="app/1",
        channel=Channel.SMS,
        name="main",
        settings=msgspec.convert(given, TwilioSettings),
        secrets=TwilioSecrets(auth_token=token),
        timeout_s=timeout_s,
        concurrency=4,
    )
    http = HttpClients(targets or Targets([LOOPBACK]))
    context = SenderContext(clock=FixedClock(), http=http, public_url=public_url)
    sender = TWILIO.open(configuration, context)
    try:
        yield sender
    finally:
        await sender.close()
        await http.close()


def make_message(body: str = "Hello", to: str = "+4917012345678") -> OutgoingMessage:
    return OutgoingMessage(
        id="n1/sms",
        notification=make_notification(make_event()),
        user=make_user(),
        address=Address("", to),
        subject=None,
        body=body,
        count=1,
        attempt=1,
    )


async def send(url: str, body: str = "Hello", to: str = "+4917012345678", **more: Any) -> Outcome:
    async with opened(url, **more) as sender:
        return await sender.send(make_message(body, to))


def code_of(outcome: Outcome) -> tuple[type[Outcome], str]:
    assert isinstance(outcome, Failure)
    return type(outcome), outcome.error_code


async def test_a_message_is_sent_as_a_form_and_waits_for_its_report(twilio: Twilio) -> None:
    message = make_message("Grüße & 1+1=2 😀" * 5)
    async with opened(twilio.url) as sender:
        outcome = await sender.send(message)
    assert outcome == Sent(response=f"SM{1:032x}: 2 segments, UCS-2")
    assert twilio.accepted == [
        {
            "From": "+15005550006",
            "To": "+4917012345678",
            "Body": message.body,
            "StatusCallback": f"{PUBLIC_URL}/callbacks/twilio/app%2F1/main/"
            + message.notification.id,
        }
    ]
    assert twilio.headers[0]["idempotency-key"] == message.id


async def test_a_messaging_service_is_named_by_its_id(twilio: Twilio) -> None:
    await send(twilio.url, **{"from": "MG" + "1" * 32})
    assert twilio.accepted[0]["MessagingServiceSid"] == "MG" + "1" * 32
    assert "From" not in twilio.accepted[0]


async def test_without_a_public_url_no_report_is_asked_for(twilio: Twilio) -> None:
    outcome = await send(twilio.url, public_url="")
    assert outcome == Delivered(response=f"SM{1:032x}: 1 segment, GSM-7")
    assert "StatusCallback" not in twilio.accepted[0]


async def test_a_wrong_token_disables_the_provider(twilio: Twilio) -> None:
    assert code_of(await send(twilio.url, token="wrong")) == (Misconfigured, "20003")
    assert code_of(await send(twilio.url, account_sid="other")) == (Misconfigured, "20404")


@pytest.mark.parametrize(
    "to", ["4917012345678", "+0170123456", "+49 170 1234567", "+491701\r\n", ""]
)
async def test_what_is_no_number_is_not_sent(twilio: Twilio, to: str) -> None:
    assert code_of(await send(twilio.url, to=to)) == (Rejected, "bad_number")
    assert twilio.accepted == []


@pytest.mark.parametrize(("body", "is_sent"), [("a" * 1530, True), ("a" * 1531, False)])
async def test_more_than_ten_segments_are_refused(
    twilio: Twilio, body: str, *, is_sent: bool
) -> None:
    outcome = await send(twilio.url, body)
    assert isinstance(outcome, Sent) is is_sent
    if not is_sent:
        assert code_of(outcome) == (Rejected, "too_long")
        assert outcome.error_message == "the text takes 11 segments, GSM-7, at most 10 can be sent"  # type: ignore[union-attr]
    assert len(twilio.accepted) == is_sent


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply.of_error(400, 21211), (Rejected, "21211")),
        (Reply.of_error(400, 21614), (Gone, "21614")),
        (Reply.of_error(400, 21610), (Gone, "21610")),
        (Reply.of_error(403, 21408), (Rejected, "21408")),
        (Reply.of_error(400, 21606), (Misconfigured, "21606")),
        (Reply.of_error(400, 21212), (Misconfigured, "21212")),
        (Reply.of_error(400, 99999), (Rejected, "99999")),
        (Reply.of_error(429, 20429), (Retry, "20429")),
        (Reply.of_error(429, 21611), (Retry, "21611")),
        (Reply.of_error(500, 20500), (Retry, "20500")),
        (Reply.of_error(503, 0), (Retry, "0")),
        (Reply(502, b"<html>"), (Retry, "502")),
        (Reply(401, b""), (Misconfigured, "401")),
        (Reply(403, b"\xff"), (Rejected, "403")),
        (Reply(302, b"", {"location": "http://127.0.0.1:1/"}), (Retry, "302")),
        (Reply(201, b"{}"), (Unknown, "no_id")),
        (Reply(201, b'{"sid": 7}'), (Unknown, "no_id")),
        (Reply(201, b'{"sid": "a\\nb"}'), (Unknown, "no_id")),
        (Reply(200, b'{"a":' * 12_000), (Unknown, "no_id")),
        (Reply(201, b'{"sid": "SM1", "error_code": 30006}'), (Gone, "30006")),
        (Reply(201, b'{"sid": "SM1", "error_code": 30999}'), (Retry, "30999")),
    ],
)
async def test_the_table_decides_what_an_answer_means(
    twilio: Twilio, reply: Reply, expected: tuple[type[Outcome], str]
) -> None:
    twilio.reply = reply
    outcome = await send(twilio.url)
    assert code_of(outcome) == expected
    assert "\r" not in outcome.error_message  # type: ignore[union-attr]
    assert len(outcome.error_message) <= 300  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "after_s"),
    [("7", 7.0), ("999999", LONGEST_WAIT_S), ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0), ("x", None)],
)
async def test_retry_after_is_honoured(twilio: Twilio, given: str, after_s: float | None) -> None:
    twilio.reply = Reply.of_error(429, 20429, "slow down", retry_after=given)
    outcome = await send(twilio.url)
    assert outcome == Retry(error_code="20429", error_message="slow down", after_s=after_s)


@pytest.mark.parametrize("fault", [*Fault])
async def test_after_the_request_was_sent_the_outcome_is_unknown(
    twilio: Twilio, fault: Fault
) -> None:
    twilio.fault = fault
    outcome = await send(twilio.url, timeout_s=1.0)
    kind, code = code_of(outcome)
    assert kind is Unknown
    assert code in {"no_answer", "no_id"}  # the latter if the head of the answer was whole
    assert twilio.url not in str(outcome)
    assert len(twilio.accepted) == 1


async def test_a_refused_connection_is_retried() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = await send(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert code_of(outcome) == (Retry, "not_connected")


async def test_a_connection_that_is_never_accepted_is_retried() -> None:
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):  # fill the queue: a further connection gets no answer at all
            client = stack.enter_context(socket.socket())
            client.setblocking(False)  # noqa: FBT003
            client.connect_ex(full.getsockname())
        outcome = await send(f"http://127.0.0.1:{full.getsockname()[1]}", timeout_s=5.0)
    assert code_of(outcome) == (Retry, "not_connected")


async def test_an_expired_certificate_is_no_connection(tmp_path: Path) -> None:
    tls = DevelopmentTls(tmp_path)
    tls.ensure(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    async with Twilio(context) as twilio:
        outcome = await send(twilio.url)
        assert code_of(outcome) == (Retry, "not_connected")
        assert twilio.accepted == []


async def test_a_private_address_is_refused_unless_it_is_allowed(twilio: Twilio) -> None:
    outcome = await send(twilio.url, targets=Targets())
    assert code_of(outcome) == (Misconfigured, "target_refused")
    assert twilio.accepted == []


async def test_many_messages_at_once(twilio: Twilio) -> None:
    async with opened(twilio.url) as sender:
        outcomes = await asyncio.gather(*(sender.send(make_message()) for _ in range(50)))
    assert {each.response for each in outcomes if isinstance(each, Sent)} == {
        f"SM{number:032x}: 1 segment, GSM-7" for number in range(1, 51)
    }


def find_faults(**changes: str) -> list[str]:
    given = {"account_sid": ACCOUNT, "from": "+15005550006"} | changes
    token = given.pop("auth_token", TOKEN)
    settings = msgspec.convert(given, TwilioSettings)
    return [each.field for each in TWILIO.find_faults(settings, TwilioSecrets(token))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"from": "Clarion App"},
        {"from": "12345"},
        {"from": "MG" + "a" * 32},
        {"account_sid": "my-project_1"},
        {"base_url": "https://sms.example/twilio/"},
        {"base_url": "http://127.0.0.1:8000"},
        {"base_url": "http://localhost"},
    ],
)
def test_settings_that_are_accepted(changes: dict[str, str]) -> None:
    assert find_faults(**changes) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"from": "+0123"}, "settings.from"),
        ({"from": "twelve chars"}, "settings.from"),
        ({"from": ""}, "settings.from"),
        ({"from": "A\r\nB"}, "settings.from"),
        ({"from": "Clarion\n"}, "settings.from"),
        ({"from": "Ärger"}, "settings.from"),
        ({"account_sid": "AC/../1"}, "settings.account_sid"),
        ({"account_sid": "AC:1"}, "settings.account_sid"),
        ({"account_sid": ""}, "settings.account_sid"),
        ({"auth_token": "a b"}, "secrets.auth_token"),
        ({"auth_token": "a\r\nX: y"}, "secrets.auth_token"),
        ({"auth_token": ""}, "secrets.auth_token"),
        ({"base_url": "ftp://sms.example"}, "settings.base_url"),
        ({"base_url": "http://sms.example"}, "settings.base_url"),
        ({"base_url": "http://8.8.8.8"}, "settings.base_url"),
        ({"base_url": "https://user:pw@sms.example"}, "settings.base_url"),
        ({"base_url": "https://sms.example?x=1"}, "settings.base_url"),
        ({"base_url": "https://sms.example#x"}, "settings.base_url"),
        ({"base_url": "https://sms.example/\r\n"}, "settings.base_url"),
        ({"base_url": "https://[::1"}, "settings.base_url"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, str], field: str) -> None:
    assert find_faults(**changes) == [field]
