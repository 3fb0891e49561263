"""Messages through the senders of the channels, beside a bare client of the same library.

The senders run in this process, as they do in the server; its CPU time is the one that is shown.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from ipaddress import ip_network
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any, NamedTuple

import aiosmtplib
import msgspec
import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pyreqwest.client import ClientBuilder

from bench.installation import token_of
from bench.process import free_ports, serving
from bench.table import Row
from clarion.catalog.model import Category, Channel, Priority
from clarion.channels.apns import APNS
from clarion.channels.fcm import FCM
from clarion.channels.http_clients import HttpClients
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import Address, Configuration, Delivered, OutgoingMessage, Sent
from clarion.channels.payloads import build_push_payload
from clarion.channels.port import SenderContext
from clarion.channels.smtp import SMTP
from clarion.channels.targets import Targets
from clarion.channels.twilio import TWILIO
from clarion.channels.web_push import WEB_PUSH
from clarion.channels.webhook import WEBHOOK
from clarion.clock import SystemClock
from clarion.history.model import Content, Notification
from clarion.people.model import User

AT_ONCE = 64
WARM_UP_S = 0.3
# The bare client and the senders take turns: a busy machine slows all of them alike.
TURNS = 10
# Nothing that is kept by URL helps: each device has one of its own.
DEVICES = 20_000
TARGET_RATIO = 0.5
# The keys of a browser, as in the tests.
KEYS = {
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4"
    "bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}
Work = Callable[[], Awaitable[None]]


class Service(NamedTuple):
    """Providers that accept everything: over TLS, plain HTTP, and SMTP."""

    url: str
    ca_path: str
    plain_url: str
    mail_port: int


@dataclass
class Sample:
    """What came of work that was done over and over."""

    took_s: float = 0.0
    cpu_s: float = 0.0
    times: list[float] = field(default_factory=list)

    def row(self, what: str, bare: Row | None) -> Row:
        percentiles = quantiles(self.times, n=100)
        throughput = len(self.times) / self.took_s
        ratio = throughput / bare.throughput if bare and bare.throughput else None
        missed = ratio is not None and ratio < TARGET_RATIO
        return Row(
            what=what,
            throughput=throughput,
            p50_s=percentiles[49],
            p99_s=percentiles[98],
            cpu_s=self.cpu_s / len(self.times),
            ratio=ratio,
            note=f"target of {TARGET_RATIO}× missed" if missed else "",
        )


def measure(seconds: float) -> Iterator[Row]:
    """Measure each sender beside a bare client of its library, against the same servers."""
    with _push_service() as service:
        for group in (_push, _http_1, _mail):
            bare, *others = uvloop.run(_measure(group, service, seconds)).items()
            first = bare[1].row(bare[0], None)
            yield first
            yield from (sample.row(what, first) for what, sample in others)


Works = AsyncIterator[tuple[str, AbstractAsyncContextManager[Work]]]


async def _push(service: Service) -> Works:
    yield "bare HTTP/2 client", _bare_client(service)
    apns, fcm = _providers(service)
    yield "push through apns", _sender(*apns)
    yield "push through fcm", _sender(*fcm)
    yield "push through apns while a webhook hangs", _beside_hanging(service, apns)


async def _http_1(service: Service) -> Works:
    yield "bare HTTP/1.1 client", _bare_client_1(service)
    hook = {"url": f"{service.plain_url}/hook"}
    yield "webhook", _sender(WEBHOOK, hook, WEBHOOK.complete({}), Channel.WEBHOOK)
    twilio = {"base_url": service.plain_url, "account_sid": "AC1", "from": "+15005550006"}
    yield "sms through twilio", _sender(TWILIO, twilio, {"auth_token": "t"}, Channel.SMS)
    subject = {"subject": "mailto:bench@example.com"}
    web_push = _sender(WEB_PUSH, subject, WEB_PUSH.complete({}), url=service.plain_url)
    yield "push through webpush", web_push


async def _mail(service: Service) -> Works:
    yield "bare SMTP client", _bare_mail(service)
    settings = {
        "host": "127.0.0.1",
        "port": service.mail_port,
        "security": "none",
        "from": "a@example.com",
    }
    yield "email through smtp", _sender(SMTP, settings, {}, Channel.EMAIL)


async def _measure(
    group: Callable[[Service], Works], service: Service, seconds: float
) -> dict[str, Sample]:
    async with AsyncExitStack() as stack:
        works = {what: await stack.enter_async_context(work) async for what, work in group(service)}
        for work in works.values():
            await _repeat(work, WARM_UP_S, Sample())
        samples = {what: Sample() for what in works}
        for _ in range(TURNS):
            for what, work in works.items():
                await _repeat(work, seconds / TURNS, samples[what])
        return samples


@contextmanager
def _push_service() -> Iterator[Service]:
    ports = free_ports(3)
    url, plain_url = f"https://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.push_service", *map(str, ports), folder]
        with serving(command, f"{url}/"):
            yield Service(url, str(Path(folder) / "ca.pem"), plain_url, ports[2])


def _providers(service: Service) -> Iterator[tuple[ProviderKind, dict[str, Any], dict[str, str]]]:
    where = {"base_url": service.url, "ca_path": service.ca_path}
    apple = {"team_id": "TEAM000001", "key_id": "KEY0000001", "topic": "com.example.app"}
    yield APNS, where | apple, {"key": _pem(ec.generate_private_key(ec.SECP256R1()))}
    account = {
        "client_email": "bench@example.com",
        "private_key": _pem(rsa.generate_private_key(65537, 2048)),
        "token_uri": f"{service.url}/token",
    }
    yield FCM, where | {"project_id": "bench"}, {"service_account": json.dumps(account)}


@asynccontextmanager
async def _bare_client(service: Service) -> AsyncIterator[Work]:
    """Yield a request by the library alone: the same body and headers, made beforehand."""
    urls = cycle([f"{service.url}/3/device/{token_of(number)}" for number in range(DEVICES)])
    body = build_push_payload(_make_message(token_of(0)))
    headers = {
        "authorization": "bearer " + "x" * 180,
        "apns-topic": "com.example.app",
        "apns-push-type": "alert",
        "apns-priority": "10",
        "apns-id": "8a1d4f0e-5d0b-5c55-9d52-6c1a5f6f0c11",
        "apns-expiration": "1900000000",
        "apns-collapse-id": "x" * 32,
    }
    certificate = Path(service.ca_path).read_bytes()  # noqa: ASYNC240
    builder = ClientBuilder().no_proxy().http2(enable=True)
    async with builder.add_root_certificate_pem(certificate).build() as client:

        async def post() -> None:
            response = (
                await client.post(next(urls)).headers(headers).body_bytes(body).build().send()
            )
            assert (response.status, response.version) == (200, "HTTP/2.0")

        yield post


@asynccontextmanager
async def _bare_client_1(service: Service) -> AsyncIterator[Work]:
    """Yield a request by the library alone, over HTTP/1.1."""
    body = b"x" * 400

    async with ClientBuilder().no_proxy().build() as client:

        async def post() -> None:
            request = client.post(f"{service.plain_url}/hook").body_bytes(body)
            assert (await request.build().send()).status == HTTPStatus.OK

        yield post


@asynccontextmanager
async def _bare_mail(service: Service) -> AsyncIterator[Work]:
    """Yield an email by the library alone, over connections that stay open."""
    clients = [
        aiosmtplib.SMTP(hostname="127.0.0.1", port=service.mail_port, start_tls=False)
        for _ in range(AT_ONCE)
    ]
    for each in clients:
        await each.connect()
    body = b"Subject: Ana\r\n\r\nliked your photo of the harbour\r\n"

    async def send() -> None:
        client = clients.pop()
        await client.sendmail("a@example.com", ["b@example.com"], body)
        clients.append(client)

    yield send
    for each in clients:
        each.close()


@asynccontextmanager
async def _beside_hanging(
    service: Service, provider: tuple[ProviderKind, dict[str, Any], dict[str, str]]
) -> AsyncIterator[Work]:
    """Yield a push by one provider while as many messages wait for another that hangs."""
    hook = {"url": f"{service.plain_url}/hang"}
    hanging = _sender(WEBHOOK, hook, WEBHOOK.complete({}), Channel.WEBHOOK)
    async with hanging as hang, _sender(*provider) as send:
        waiting: set[asyncio.Task[None]] = set()

        async def work() -> None:
            while len(waiting) < AT_ONCE:
                task = asyncio.ensure_future(_ignore(hang()))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            await send()

        yield work
        for task in waiting:
            task.cancel()


async def _ignore(work: Awaitable[None]) -> None:
    with suppress(AssertionError):
        await work


@asynccontextmanager
async def _sender(
    kind: ProviderKind,
    settings: dict[str, Any],
    secrets: dict[str, str],
    channel: Channel = Channel.PUSH,
    url: str = "",
) -> AsyncIterator[Work]:
    http = HttpClients(Targets([ip_network("127.0.0.0/8")]))
    configuration = Configuration(
        app_id="app",
        channel=channel,
        name=kind.name,
        settings=msgspec.convert(settings, kind.settings),
        secrets=msgspec.convert(secrets, kind.secrets),
        timeout_s=10,
        concurrency=AT_ONCE,
    )
    context = SenderContext(clock=SystemClock(), http=http, public_url="https://example.com")
    sender = kind.open(configuration, context)
    find = partial(_find_address, kind, url)
    messages = cycle([_make_message(find(number)) for number in range(DEVICES)])

    async def send() -> None:
        outcome = await sender.send(next(messages))
        assert isinstance(outcome, Delivered | Sent), outcome

    try:
        yield send
    finally:
        await sender.close()
        await http.close()


def _find_address(kind: ProviderKind, url: str, number: int) -> str:
    if kind is TWILIO:
        return "+4915112345678"
    if kind is SMTP:
        return "ana@example.com"
    if kind is WEB_PUSH:
        return json.dumps({"endpoint": f"{url}/{number}", "keys": KEYS})
    return token_of(number)


async def _repeat(work: Work, seconds: float, sample: Sample) -> None:
    """Do the work over and over, 64 at once, and add what came of it to the sample."""
    began_at, began_cpu = perf_counter(), process_time()
    end = began_at + seconds

    async def repeat() -> None:
        while (started_at := perf_counter()) < end:
            await work()
            sample.times.append(perf_counter() - started_at)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(repeat())
    sample.took_s += perf_counter() - began_at
    sample.cpu_s += process_time() - began_cpu


def _make_message(token: str) -> OutgoingMessage:
    now = SystemClock().now()
    notification = Notification(
        app_id="app",
        user_id="ana",
        id="0190f000-0000-7000-8000-000000000001",
        event_id="0190f000-0000-7000-8000-000000000002",
        type="POST_LIKE",
        category=Category.SOCIAL,
        priority=Priority.HIGH,
        title="Ana",
        body="liked your photo of the harbour",
        content=Content(data={"photo": 42}, deeplink="app://photos/42", collapse_key="photo 42"),
        is_shown=True,
        expires_at=now + 3_600_000,
        created_at=now,
    )
    return OutgoingMessage(
        id="0190f000-0000-7000-8000-000000000001/push",
        notification=notification,
        user=User(app_id="app", id="ana", created_at=now, updated_at=now),
        address=Address("device", token),
        subject="Ana",
        body="liked your photo of the harbour",
        count=1,
        attempt=1,
    )


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()
