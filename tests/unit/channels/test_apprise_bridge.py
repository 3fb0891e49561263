"""The bridge to Apprise: real notifications to a server on loopback, and what is refused."""

import asyncio
import contextlib
import inspect
import json
import re
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from apprise.manager_plugins import NotificationManager

from clarion.catalog.model import Channel
from clarion.channels.apprise_bridge import (
    _PROCESSES,
    APP_PROCESSES,
    APPRISE,
    AppriseSecrets,
    AppriseSender,
)
from clarion.channels.apprise_schemes import ALLOWED, OF_VENDORS, SELF_HOSTED
from clarion.channels.http_clients import HttpClients
from clarion.channels.kinds import Nothing
from clarion.channels.model import (
    Address,
    Configuration,
    Delivered,
    Failure,
    Misconfigured,
    Outcome,
    OutgoingMessage,
    Rejected,
    Retry,
    Unknown,
)
from clarion.channels.port import SenderContext
from clarion.channels.targets import Targets
from tests.factories import FixedClock, make_user
from tests.peers.twilio import Reply, encode, read_request
from tests.pipeline import make_event, make_notification

LOOPBACK = Targets([ip_network("127.0.0.0/8")])


class Service:
    """An HTTP server that keeps what it got; `reply` None lets the client wait."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.reply: Reply | None = Reply(200, b"ok")
        self.is_endless = False
        self.has_got = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        with contextlib.suppress(
            asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError
        ):
            path, _, body = await read_request(reader)
            self.got.append((path, body))
            self.has_got.set()
            if self.is_endless:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            elif self.reply is None:
                await asyncio.sleep(60)
            else:
                writer.write(encode(self.reply))
            while self.is_endless:
                writer.write(bytes(1 << 20))
                await writer.drain()
        self._tasks.discard(task)
        writer.close()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    await service.start()
    yield service
    await service.stop()


@contextlib.asynccontextmanager
async def opened(
    url: str, *, targets: Targets = LOOPBACK, timeout_s: float = 30.0
) -> AsyncIterator[AppriseSender]:
    configuration = Configuration(
        app_id="a1",
        channel=Channel.WEBHOOK,
        name="chat",
        settings=Nothing(),
        secrets=AppriseSecrets(url),
        timeout_s=timeout_s,
        concurrency=32,
    )
    http = HttpClients(targets)
    context = SenderContext(clock=FixedClock(), http=http, public_url="https://clarion.example")
    sender = AppriseSender(configuration, context)
    try:
        yield sender
    finally:
        await sender.close()
        await http.close()


def make_message(to: str = "", **changes: Any) -> OutgoingMessage:
    values: dict[str, Any] = {
        "id": "n1/webhook",
        "notification": make_notification(make_event()),
        "user": make_user(),
        "address": Address("", to),
        "subject": "Ein Täst",
        "body": "1 < 2 & <b>\nline two",
        "count": 1,
        "attempt": 1,
    }
    return OutgoingMessage(**values | changes)


async def send(url: str, to: str = "", **more: Any) -> Outcome:
    async with opened(url, **more) as sender:
        return await sender.send(make_message(to))


def code_of(outcome: Outcome) -> tuple[type[Outcome], str]:
    assert isinstance(outcome, Failure), outcome
    return type(outcome), outcome.error_code


async def test_a_notification_reaches_a_service(service: Service) -> None:
    outcome = await send(f"json://{service.host}/in?retry=3&wait=9")
    assert outcome == Delivered(response="sent by Apprise")
    ((path, body),) = service.got
    given = json.loads(body)
    assert path == "/in"
    assert (given["title"], given["message"]) == ("Ein Täst", "1 < 2 & <b>\nline two")


async def test_the_address_of_the_user_can_be_part_of_the_url(service: Service) -> None:
    url = f"form://{service.host}/send/{{to}}"
    async with opened(url) as sender:
        assert isinstance(await sender.send(make_message("+491701234567")), Delivered)
        for bad in ("", "a/b", "a,b", "a b", "a?x=1", "a#b", "a%2fb", "ä"):
            assert code_of(await sender.send(make_message(bad))) == (Rejected, "bad_address")
    ((path, body),) = service.got
    assert path == "/send/+491701234567"
    assert parse_qs(body.decode())["message"]


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
async def test_a_failure_is_retried_by_clarion_and_not_by_apprise(
    service: Service, status: int
) -> None:
    service.reply = Reply(status, b"no")
    assert code_of(await send(f"json://{service.host}/?retry=3")) == (Retry, "failed")
    assert len(service.got) == 1


async def test_a_redirect_is_not_followed(service: Service) -> None:
    service.reply = Reply(302, b"", {"location": f"http://{service.host}/elsewhere"})
    assert code_of(await send(f"json://{service.host}/")) == (Retry, "failed")
    assert len(service.got) == 1


async def test_what_takes_too_long_is_ended_and_its_outcome_is_unknown(service: Service) -> None:
    service.reply = None
    async with opened(f"json://{service.host}/?rto=600", timeout_s=8.0) as sender:
        assert code_of(await sender.send(make_message())) == (Unknown, "timed_out")
        assert len(service.got) == 1
        service.reply = Reply(200, b"ok")
        assert isinstance(await sender.send(make_message()), Delivered)


async def test_without_a_connection_it_is_retried(service: Service) -> None:
    host = service.host
    await service.stop()
    assert code_of(await send(f"json://{host}/")) == (Retry, "failed")


@pytest.mark.parametrize("reply", [Reply(200, b"ok", {"content-length": "10"}), Reply(0, b"")])
async def test_half_an_answer_leaves_the_outcome_unknown(service: Service, reply: Reply) -> None:
    service.reply = reply
    assert code_of(await send(f"json://{service.host}/")) == (Unknown, "broken")


async def test_an_app_has_a_part_of_the_processes(service: Service) -> None:
    service.reply = None
    async with opened(f"json://{service.host}/?rto=600", timeout_s=8.0) as sender:
        sent = [sender.send(make_message()) for _ in range(APP_PROCESSES + 1)]
        outcomes = await asyncio.gather(*sent)
    codes = sorted(code_of(each)[1] for each in outcomes)
    assert codes == ["busy"] + ["timed_out"] * APP_PROCESSES
    assert len(service.got) == APP_PROCESSES


async def test_a_response_without_end_ends_the_process_and_not_the_server(
    service: Service,
) -> None:
    service.is_endless = True
    async with opened(f"json://{service.host}/", timeout_s=60.0) as sender:
        assert code_of(await sender.send(make_message())) == (Unknown, "broken")
        service.is_endless = False
        assert isinstance(await sender.send(make_message()), Delivered)


async def test_a_cancelled_message_leaves_no_process(service: Service) -> None:
    service.reply = None
    async with opened(f"json://{service.host}/") as sender:
        task = asyncio.create_task(sender.send(make_message()))
        await service.has_got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not sender._processes._idle
        assert sender._processes._running.total() == 0


async def test_processes_end_with_the_last_sender(service: Service) -> None:
    async with opened(f"json://{service.host}/") as sender:
        await sender.send(make_message())
        (process,) = sender._processes._idle
    assert process._process.returncode is not None
    assert not _PROCESSES or sender._processes._idle == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]"])
async def test_a_private_address_is_refused(service: Service, host: str) -> None:
    port = service.host.rpartition(":")[2]
    outcome = await send(f"json://{host}:{port}/", targets=Targets())
    assert code_of(outcome) in {(Misconfigured, "target_refused"), (Misconfigured, "bad_url")}
    assert service.got == []


@pytest.mark.parametrize("scheme", ["discord", "workflows", "slack", "tgram"])
async def test_no_file_is_read(service: Service, tmp_path: Path, scheme: str) -> None:
    """Templates of some services are files, whose text would be sent to whoever set the URL."""
    secret = tmp_path / "secret.json"
    secret.write_text(
        '{"text": "secret", "content": "secret", "$schema": "x", "type": "AdaptiveCard"}'
    )
    places = {
        "discord": "discord://" + "1" * 18 + "/" + "a" * 68,
        "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "tgram": "tgram://123456789:abcdefg_hijklmnop/12315544/",
        "workflows": f"workflows://{service.host}/abcdef/signature",
    }
    outcome = await send(f"{places[scheme]}?template={secret}", timeout_s=15.0)
    assert not isinstance(outcome, Delivered)
    assert service.got == []


async def test_a_url_that_apprise_cannot_read_disables_the_provider() -> None:
    assert code_of(await send("discord://x")) == (Misconfigured, "bad_url")


async def test_certificates_are_always_verified(service: Service) -> None:
    for query in ("verify=no", "VERIFY=0", "%76erify=false", "+verify=off&x=1", "a=b&verify=no"):
        assert find_faults(f"jsons://{service.host}/?{query}") == [
            ("secrets.url", "must not have `verify`: certificates are always verified")
        ]
    # A provider that is stored already.
    outcome = await send(f"json://{service.host}/?verify=no")
    assert code_of(outcome) == (Misconfigured, "bad_url")
    assert service.got == []


def list_names(path: Path) -> list[str]:
    return [each.name for each in path.iterdir()]


async def test_no_file_is_left(service: Service, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login operator password secret\n")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert isinstance(await send(f"json://{service.host}/"), Delivered)
    assert list_names(tmp_path) == [".netrc"]


async def test_nothing_is_logged(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    service.reply = Reply(500, b"no")
    await send(f"json://user:very-secret@{service.host}/")
    await send("discord://very-secret")
    assert capfd.readouterr() == ("", "")


def find_faults(url: str) -> list[tuple[str, str]]:
    found = APPRISE.find_faults(Nothing(), AppriseSecrets(url))
    return [(each.field, each.reason) for each in found]


DANGEROUS = [
    "file", "syslog", "rsyslog", "dbus", "qt", "kde", "gio", "glib", "gnome", "windows", "macosx",
    "blink1", "exec", "script", "http", "https", "mailto", "mailtos", "irc", "ircs", "xmpp",
    "mqtt", "mqtts", "amqp", "growl", "smpp", "matrix", "matrixs", "fcm", "vapid", "aprs", "nostr",
    "deltachat", "include", "config", "memory",
]  # fmt: skip


@pytest.mark.parametrize("scheme", DANGEROUS)
def test_dangerous_schemes_are_refused(scheme: str) -> None:
    expected = [("secrets.url", f"must not have the scheme {scheme}")]
    assert find_faults(f"{scheme}://host/path") == expected


@pytest.mark.parametrize(
    "url",
    [
        "", "discord", "discord:", "DISCORD://a/b", " discord://a", "discord://a b", "json://a\r\n",
        "json://ä", "json://{to}/a", "json://a{to}/", "discord://" + "a" * 2_000,
    ],
)  # fmt: skip
def test_what_is_no_url_is_refused(url: str) -> None:
    ((field, reason),) = find_faults(url)
    assert field == "secrets.url"
    assert reason.startswith("must ")


@pytest.mark.parametrize("url", ["discord://1/2", "jsons://a.example/{to}", "ntfys://a.example/b"])
def test_urls_that_are_accepted(url: str) -> None:
    assert find_faults(url) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Apprise imports
def test_every_allowed_scheme_is_one_of_apprise_over_http_alone() -> None:
    """A new release may change a service: then this says which to look at."""
    manager: Any = NotificationManager()  # type: ignore[no-untyped-call]
    manager.load_modules()
    other = re.compile(
        r"^\s*(import|from) (socket|smtplib|subprocess|ctypes|asyncio|threading|concurrent)\b",
        re.MULTILINE,
    )
    assert not OF_VENDORS & SELF_HOSTED
    assert sorted(ALLOWED - set(manager.schemas())) == []
    for scheme in sorted(ALLOWED):
        plugin = manager[scheme]
        module = inspect.getmodule(plugin)
        assert module is not None
        source = inspect.getsource(module)
        assert plugin.enabled, scheme
        assert "requests" in source, scheme
        assert not other.search(source), scheme


def test_the_documentation_lists_the_schemes() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "how-to", "apprise.md").read_text()
    listed = re.findall(r"`([a-z0-9]+)`", page.partition("## Schemes")[2])
    assert listed == [*sorted(OF_VENDORS), *sorted(SELF_HOSTED)]
