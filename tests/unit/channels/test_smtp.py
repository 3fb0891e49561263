"""The sender of email, against real and against faulty SMTP servers on loopback."""

import asyncio
import contextlib
import gc
import os
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clarion.catalog.model import Category, Channel
from clarion.channels.authorities import make_client_context
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
    Unknown,
)
from clarion.channels.port import Sender, SenderContext
from clarion.channels.smtp import SMTP, SmtpSecrets, SmtpSettings
from clarion.channels.targets import Targets
from tests.factories import FixedClock, make_user
from tests.peers.mail_servers import PASSWORD, USERNAME, Authority, MailServer, ScriptedServer
from tests.pipeline import make_event, make_notification

LOOPBACK = ip_network("127.0.0.0/8")
HTML = "<p>Order 7 is <b>on its way</b>.</p><p><a href='https://example.com/7'>Track it</a></p>"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[MailServer]:
    async with MailServer(authority) as server:
        yield server


def make_message(**changes: Any) -> OutgoingMessage:
    notification = {
        name: changes.pop(name) for name in ("category", "type", "title") if name in changes
    }
    user = changes.pop("user", None) or make_user("ana", name="Ana Müller, PhD")
    values: dict[str, Any] = {
        "id": "0190f000-0000-7000-8000-000000000001/email",
        "notification": make_notification(make_event(), **notification),
        "user": user,
        "address": Address("", "ana@example.com"),
        "subject": "Order 7 ist unterwegs – 📦",
        "body": HTML,
        "count": 1,
        "attempt": 1,
        "is_html": True,
        "language": "de",
    }
    return OutgoingMessage(**values | changes)


def make_url(app_id: str, user_id: str, type_name: str, channel: Channel) -> str:
    return f"https://notify.example.com/unsubscribe/{app_id}.{user_id}.{type_name}.{channel}"


@contextlib.asynccontextmanager
async def opened(
    port: int,
    *,
    timeout_s: float = 5.0,
    concurrency: int = 4,
    targets: Targets | None = None,
    password: str | None = None,
    **settings: Any,
) -> AsyncIterator[Sender]:
    given = {"host": "localhost", "port": port, "from": "Clarion Läden <noreply@shop.example>"}
    configuration = Configuration(
        app_id="app",
        channel=Channel.EMAIL,
        name="main",
        settings=msgspec.convert(given | settings, SmtpSettings),
        secrets=SmtpSecrets(password),
        timeout_s=timeout_s,
        concurrency=concurrency,
    )
    http = HttpClients(targets or Targets([LOOPBACK, ip_network("::1/128")]))
    context = SenderContext(
        clock=FixedClock(),
        http=http,
        public_url="https://notify.example.com",
        unsubscribe_url=make_url,
    )
    sender = SMTP.open(configuration, context)
    try:
        yield sender
    finally:
        await sender.close()
        await http.close()


@contextlib.asynccontextmanager
async def opened_to(server: MailServer, **changes: Any) -> AsyncIterator[Sender]:
    given = {"username": USERNAME, "password": PASSWORD, "ca_path": server.authority.ca_path}
    given["security"] = "tls" if server.is_tls else "starttls"
    async with opened(server.port, **given | changes) as sender:
        yield sender


def check_failure(outcome: Outcome, kind: type[Failure], code: str) -> Failure:
    assert isinstance(outcome, Failure)
    assert (type(outcome), outcome.error_code) == (kind, code), outcome
    return outcome


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_message_is_delivered(authority: Authority, *, is_tls: bool) -> None:
    async with MailServer(authority, is_tls=is_tls) as server, opened_to(server) as sender:
        outcome = await sender.send(make_message())
    assert outcome == Delivered(response="250 2.0.0 Queued as 4711")
    (envelope,) = server.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == ("noreply@shop.example", ["ana@example.com"])
    (mail,) = server.messages
    headers = {
        "From": "Clarion Läden <noreply@shop.example>",
        "To": '"Ana Müller, PhD" <ana@example.com>',
        "Subject": "Order 7 ist unterwegs – 📦",
        "Message-ID": "<0190f000-0000-7000-8000-000000000001.email@shop.example>",
        "Date": "Thu, 01 Jan 2026 00:00:00 +0000",
        "Auto-Submitted": "auto-generated",
        "Content-Language": "de",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }
    assert {name: mail[name] for name in headers} == headers
    assert mail["List-Unsubscribe"].startswith("<https://notify.example.com/unsubscribe/app.ana.")
    text, html = mail.iter_parts()
    assert (mail.get_content_type(), text.get_content_type(), html.get_content_type()) == (
        "multipart/alternative",
        "text/plain",
        "text/html",
    )
    assert html.get_content().strip() == HTML
    assert text.get_content().split() == (
        ["Order", "7", "is", "on", "its", "way.", "Track", "it", "(https://example.com/7)"]
    )


async def test_a_repeat_has_the_same_id(server: MailServer) -> None:
    async with opened_to(server) as sender:
        for attempt in (1, 2):
            await sender.send(make_message(attempt=attempt))
    assert len({mail["Message-ID"] for mail in server.messages}) == 1


async def test_plain_text_stays_text_even_if_it_looks_like_html(server: MailServer) -> None:
    async with opened_to(server) as sender:
        await sender.send(make_message(body="<img src=x onerror=alert(1)> liked it", is_html=False))
    (mail,) = server.messages
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().strip() == "<img src=x onerror=alert(1)> liked it"


@pytest.mark.parametrize("change", [{"category": Category.SECURITY}, {"user_can_disable": False}])
async def test_what_cannot_be_turned_off_has_no_link_for_it(
    server: MailServer, change: dict[str, Any]
) -> None:
    async with opened_to(server) as sender:
        await sender.send(make_message(**change))
    assert "List-Unsubscribe" not in server.messages[0]


async def test_lines_that_begin_with_a_dot_arrive(server: MailServer) -> None:
    body = ".\r\n..a\n.\n\r\n.b" + "ä" * 2_000
    async with opened_to(server) as sender:
        await sender.send(make_message(body=body, is_html=False))
    shown = server.messages[0].get_content().replace("\r\n", "\n")
    assert shown.rstrip("\n") == body.replace("\r\n", "\n")


async def test_connections_are_reused_and_limited(server: MailServer) -> None:
    server.delay_s = 0.02
    async with opened_to(server, concurrency=3) as sender:
        outcomes = await asyncio.gather(*(sender.send(make_message()) for _ in range(12)))
        assert {type(each) for each in outcomes} == {Delivered}
        assert (server.most, server.connections) == (3, 3)
        await sender.send(make_message())
        assert server.connections == 3


async def test_a_connection_that_the_server_closed_is_replaced(server: MailServer) -> None:
    async with opened_to(server) as sender:
        assert isinstance(await sender.send(make_message()), Delivered)
        server.drop()
        assert isinstance(await sender.send(make_message()), Delivered)
    assert server.connections == 2


@pytest.mark.parametrize("answer", ["reset", "close", "421 4.4.2 idle for too long"])
async def test_a_connection_that_ends_with_the_next_command_is_replaced(answer: str) -> None:
    async with ScriptedServer() as server, opened(server.port, security="none") as sender:
        assert isinstance(await sender.send(make_message()), Delivered)
        server.script["MAIL"] = answer
        asyncio.get_running_loop().call_later(0.1, server.script.clear)
        outcome = await sender.send(make_message())
        # On the new connection the answer counts; it may have come before the script ended.
        assert isinstance(outcome, Delivered | Retry)
        assert server.connections == 2
        server.script.clear()
        assert isinstance(await sender.send(make_message()), Delivered)


async def test_a_refused_message_leaves_the_connection_usable() -> None:
    async with ScriptedServer({"RCPT": "550 5.1.1 no"}) as server:
        async with opened(server.port, security="none") as sender:
            check_failure(await sender.send(make_message()), Gone, "5.1.1")
            server.script.clear()
            assert isinstance(await sender.send(make_message()), Delivered)
        assert server.connections == 1
        assert server.seen[:4] == ["EHLO", "MAIL", "RCPT", "RSET"]


async def test_a_cancelled_message_ends_its_connection() -> None:
    async with ScriptedServer({"END": "hang"}) as server:
        async with opened(server.port, security="none") as sender:
            task = asyncio.create_task(sender.send(make_message()))
            await server.received.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            server.script.clear()
            assert isinstance(await sender.send(make_message()), Delivered)
        assert server.connections == 2


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        ({"HELLO": "421 busy"}, Retry, "421"),
        ({"HELLO": "554 go away"}, Retry, "server_refused"),
        ({"EHLO": "hang"}, Retry, "not_connected"),
        ({"MAIL": "451 4.3.0 later"}, Retry, "451"),
        ({"MAIL": "550 5.1.1 who are you"}, Retry, "sender_refused"),
        ({"MAIL": "530 5.7.0 log in first"}, Misconfigured, "530"),
        ({"RCPT": "421 4.3.2 shutting down"}, Retry, "421"),
        ({"RCPT": "450 4.2.0 greylisted"}, Retry, "450"),
        ({"RCPT": "452 4.2.2 full"}, Retry, "452"),
        ({"RCPT": "454 4.7.1 later"}, Retry, "454"),
        ({"RCPT": "550 5.1.1 no such user"}, Gone, "5.1.1"),
        ({"RCPT": "550-5.1.1 no such user\r\n550 5.1.1 at all"}, Gone, "5.1.1"),
        ({"RCPT": "553 5.1.3 bad address"}, Gone, "5.1.3"),
        ({"RCPT": "556 5.1.10 null MX"}, Gone, "5.1.10"),
        ({"RCPT": "551 not local"}, Gone, "551"),
        ({"RCPT": "550 5.7.1 blocked"}, Rejected, "5.7.1"),
        ({"RCPT": "550 refused"}, Rejected, "550"),
        ({"RCPT": "535 5.7.8 no"}, Misconfigured, "535"),
        ({"DATA": "451 4.3.0 later"}, Retry, "451"),
        ({"DATA": "554 5.5.1 no"}, Rejected, "5.5.1"),
        ({"DATA": "250 ok"}, Retry, "not_connected"),
        ({"END": "452 4.3.1 disk full"}, Retry, "452"),
        ({"END": "552 5.3.4 too large"}, Rejected, "5.3.4"),
        ({"END": "554 5.7.1 spam"}, Rejected, "5.7.1"),
        ({"END": "354 what"}, Unknown, "no_answer"),
        ({"END": "hello"}, Unknown, "no_answer"),
        ({"MAIL": "hello"}, Retry, "not_connected"),
        *(
            ({step: fault}, Retry, "not_connected")
            for step in ("HELLO", "MAIL", "RCPT", "DATA")
            for fault in ("reset", "close", "hang", "half", "slow")
        ),
        *(({"END": fault}, Unknown, "no_answer") for fault in ("reset", "close", "hang", "half")),
        ({"END": "slow"}, Unknown, "no_answer"),
    ],
)
async def test_every_fault_has_its_outcome(
    script: dict[str, str], kind: type[Failure], code: str
) -> None:
    async with (
        ScriptedServer(script) as server,
        opened(server.port, security="none", timeout_s=0.6) as sender,
    ):
        failure = check_failure(await sender.send(make_message()), kind, code)
    assert len(failure.error_message) <= 300
    assert failure.error_message.isprintable()
    # Before the end of the message nothing was handed over.
    assert bool(server.messages) == ("END" in script)


async def test_a_long_answer_is_cut_and_cleaned() -> None:
    script = {"RCPT": f"550 5.7.1 \x1b[31m{'x' * 500}"}
    async with (
        ScriptedServer(script) as server,
        opened(server.port, security="none") as sender,
    ):
        failure = check_failure(await sender.send(make_message()), Rejected, "5.7.1")
    assert len(failure.error_message) == 300
    assert "\x1b" not in failure.error_message


async def test_nobody_listens() -> None:
    async with ScriptedServer() as server:
        port = server.port
    async with opened(port, security="none") as sender:
        check_failure(await sender.send(make_message()), Retry, "not_connected")


async def test_a_wrong_password_disables_the_provider(server: MailServer) -> None:
    async with opened_to(server, password="wrong") as sender:
        failure = check_failure(await sender.send(make_message()), Misconfigured, "535")
    assert "wrong" not in failure.error_message
    assert server.envelopes == []


async def test_a_server_without_authentication_disables_the_provider(authority: Authority) -> None:
    script = {"EHLO": "250-mail\r\n250 STARTTLS", "STARTTLS": "220 go"}
    async with (
        ScriptedServer(script, context=authority.context) as server,
        opened(server.port, username="u", password="p", ca_path=authority.ca_path) as sender,
    ):
        check_failure(await sender.send(make_message()), Misconfigured, "no_auth")
    assert "AUTH" not in server.seen


# asyncio of Python 3.11 leaves the transport under a TLS handshake that failed to be collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.parametrize("fault", ["expired", "unknown authority", "another name"])
async def test_a_certificate_that_is_not_valid_gets_nothing(
    tmp_path: Path, security: str, fault: str
) -> None:
    authority = Authority(tmp_path / "tls", days_ago=500 if fault == "expired" else 0)
    script = {"EHLO": "250-mail\r\n250-AUTH PLAIN\r\n250 STARTTLS", "STARTTLS": "220 go"}
    settings: dict[str, Any] = {"security": security, "username": "u", "password": "secret word"}
    if fault != "unknown authority":
        settings["ca_path"] = authority.ca_path
    if fault == "another name":
        settings["host"] = "127.0.0.2"
    async with ScriptedServer(
        script, context=authority.context, is_tls=security == "tls"
    ) as server:
        if fault == "another name":
            server._server.close()
            server._server = await asyncio.start_server(
                server._serve,
                "127.0.0.2",
                0,
                ssl=authority.context if security == "tls" else None,
            )
            server.port = server._server.sockets[0].getsockname()[1]
        async with opened(server.port, **settings) as sender:
            failure = check_failure(await sender.send(make_message()), Retry, "not_connected")
    assert "certificate" in failure.error_message
    assert not {"AUTH", "MAIL"} & set(server.seen)
    gc.collect()


async def test_without_starttls_nothing_is_sent(authority: Authority) -> None:
    async with (
        ScriptedServer({"EHLO": "250-mail\r\n250 AUTH PLAIN"}) as server,
        opened(server.port, username="u", password="p", ca_path=authority.ca_path) as sender,
    ):
        check_failure(await sender.send(make_message()), Retry, "no_starttls")
    assert server.seen == ["EHLO"]


async def test_what_a_third_party_adds_after_starttls_is_not_believed(
    authority: Authority,
) -> None:
    """The answers that it adds in plain text would count as those of the encrypted session."""
    script = {
        "EHLO": "250-mail\r\n250 STARTTLS",
        "STARTTLS": "220 go\r\n250-evil\r\n250 AUTH LOGIN",
    }
    async with (
        ScriptedServer(script, context=authority.context) as server,
        opened(server.port, username="u", password="p", ca_path=authority.ca_path) as sender,
    ):
        outcome = await sender.send(make_message())
    # The second EHLO is answered by the server itself, which offers no authentication.
    check_failure(outcome, Misconfigured, "no_auth")
    assert "AUTH" not in server.seen


def test_old_versions_of_tls_are_refused(authority: Authority) -> None:
    for ca_path in (None, authority.ca_path):
        context = make_client_context(ca_path)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "10.0.0.1", "169.254.169.254", "0.0.0.1"],
)
async def test_a_private_host_is_not_called(server: MailServer, host: str) -> None:
    async with opened(server.port, host=host, targets=Targets()) as sender:
        failure = check_failure(await sender.send(make_message()), Misconfigured, "bad_settings")
    assert "--allow-private-targets" in failure.error_message
    assert server.connections == 0


async def test_a_host_that_cannot_be_resolved_is_tried_again() -> None:
    async with opened(25, host="no-such-host.invalid") as sender:
        check_failure(await sender.send(make_message()), Retry, "not_connected")


async def test_a_public_host_is_never_called_without_encryption() -> None:
    async with opened(25, host="8.8.8.8", security="none") as sender:
        failure = check_failure(await sender.send(make_message()), Misconfigured, "bad_settings")
    assert "private network" in failure.error_message


async def test_an_address_beyond_ascii_needs_a_server_that_takes_it(authority: Authority) -> None:
    there = Address("", "änne@müller.example")
    async with MailServer(authority) as server, opened_to(server) as sender:
        assert isinstance(await sender.send(make_message(address=there)), Delivered)
        assert server.envelopes[0].rcpt_tos == ["änne@xn--mller-kva.example"]
    async with MailServer(authority, has_utf8=False) as server, opened_to(server) as sender:
        check_failure(await sender.send(make_message(address=there)), Rejected, "no_smtputf8")
        # Its domain alone has a form in ASCII.
        there = Address("", "anne@müller.example")
        assert isinstance(await sender.send(make_message(address=there)), Delivered)


@pytest.mark.parametrize(
    "address",
    ["", "ana", "a@b\r\nRCPT TO:<x@y>", "a@b> SIZE=1", "a@b,c@d", "a b@c.de", "a@b\0", "a@b\u2028"],
)
async def test_an_address_that_is_none_is_refused(server: MailServer, address: str) -> None:
    async with opened_to(server) as sender:
        outcome = await sender.send(make_message(address=Address("", address)))
    check_failure(outcome, Rejected, "bad_address")
    assert server.connections == 0


def faults(**changes: Any) -> list[str]:
    password = changes.pop("password", None)
    given = {"host": "mail.example.com", "from": "a@example.com"} | changes
    settings = msgspec.convert(given, SmtpSettings)
    return [each.field for each in SMTP.find_faults(settings, SmtpSecrets(password))]


def test_these_settings_are_taken(authority: Authority) -> None:
    assert faults() == []
    assert (
        faults(
            **{"from": '"Läden, GmbH" <a@müller.de>', "reply_to": "Bo <bo@example.com>"},
            username="u",
            password="p",
            security="tls",
            port=465,
            ca_path=authority.ca_path,
        )
        == []
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({name: f"Bo{x}Bcc: a@b.c <a@b.c>"}, f"settings.{name}") for name in ("from", "reply_to")
          for x in ("\r\n", "\n", "\r", "\0", "\x85", "\u2028", "\x1b")),
        *(({"from": text}, "settings.from") for text in ("", "Bo", "a@b, c@d", "<a@b> <c@d>",
          "a@b\r\n", "a@b\n", "Bo <a@b>\n", "a@" + "x" * 300, "a@b..c" + "ä" * 70)),
        *(({"host": text}, "settings.host") for text in ("", "a b", "a\r\nb", "a/b", "u@h")),
        *(({"port": port}, "settings.port") for port in (0, -1, 65_536)),
        ({"username": "a\r\nb", "password": "p"}, "settings.username"),
        ({"username": "u", "password": "p", "security": "none"}, "settings.security"),
        ({"username": "u"}, "secrets.password"),
        ({"password": "p"}, "secrets.password"),
    ],
)  # fmt: skip
def test_these_settings_are_refused(change: dict[str, Any], field: str) -> None:
    assert faults(**change) == [field]


def test_a_file_that_is_no_authority_is_refused_in_the_same_words(tmp_path: Path) -> None:
    secret, pipe = tmp_path / "secret", tmp_path / "pipe"
    secret.write_text("root:x:0:0")
    os.mkfifo(pipe)
    paths = [secret, pipe, tmp_path, tmp_path / "none", "/dev/zero", "/dev/null", "a\0b", ""]
    found = set()
    for path in paths:
        settings = SmtpSettings(host="a", sender="a@b.c", ca_path=str(path))
        found |= set(SMTP.find_faults(settings, SmtpSecrets()))
    (fault,) = found
    assert fault.field == "settings.ca_path"


async def test_a_file_that_is_no_authority_any_more_disables_the_provider() -> None:
    async with (
        ScriptedServer() as server,
        opened(server.port, security="tls", ca_path="/nowhere") as sender,
    ):
        failure = check_failure(await sender.send(make_message()), Misconfigured, "bad_settings")
    assert "nowhere" not in failure.error_message
