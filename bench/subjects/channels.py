"""Messages through the senders of the channels, beside a bare client of the same library.

The senders run in this process, as they do in the server; its CPU time is the one that is shown.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import NamedTuple

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
from clarion.channels.kinds import Kind
from clarion.channels.model import Address, Configuration, Delivered, OutgoingMessage
from clarion.channels.payloads import build_push_payload
from clarion.channels.port import SenderContext
from clarion.channels.targets import Targets
from clarion.clock import SystemClock
from clarion.events.model import Content, Notification
from clarion.people.model import User

AT_ONCE = 64
WARM_UP_S = 0.3
# The bare client and the senders take turns: a busy machine slows all of them alike.
TURNS = 10
# Nothing that is kept by URL helps: each device has one of its own.
DEVICES = 20_000
TARGET_RATIO = 0.5
Work = Callable[[], Awaitable[None]]


class Service(NamedTuple):
    """A push service that accepts everything."""

    url: str
    ca_path: str


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
    """Measure the bare client and each sender against the same server."""
    with _push_service() as service:
        bare, *others = uvloop.run(_measure(service, seconds)).items()
    first = bare[1].row(bare[0], None)
    yield first
    yield from (sample.row(what, first) for what, sample in others)


async def _measure(service: Service, seconds: float) -> dict[str, Sample]:
    async with AsyncExitStack() as stack:
        works = {"bare HTTP/2 client": await stack.enter_async_context(_bare_client(service))}
        for kind, settings, secrets in _providers(service):
            work = await stack.enter_async_context(_sender(kind, settings, secrets))
            works[f"push through {kind.name}, answered at once"] = work
        for work in works.values():
            await _repeat(work, WARM_UP_S, Sample())
        samples = {what: Sample() for what in works}
        for _ in range(TURNS):
            for what, work in works.items():
                await _repeat(work, seconds / TURNS, samples[what])
        return samples


@contextmanager
def _push_service() -> Iterator[Service]:
    (port,) = free_ports(1)
    url = f"https://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.push_service", str(port), folder]
        with serving(command, f"{url}/"):
            yield Service(url, str(Path(folder) / "ca.pem"))


def _providers(service: Service) -> Iterator[tuple[Kind, dict[str, str], dict[str, str]]]:
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
async def _sender(
    kind: Kind, settings: dict[str, str], secrets: dict[str, str]
) -> AsyncIterator[Work]:
    http = HttpClients(Targets([ip_network("127.0.0.0/8")]))
    configuration = Configuration(
        app_id="app",
        channel=Channel.PUSH,
        name=kind.name,
        settings=msgspec.convert(settings, kind.settings),
        secrets=msgspec.convert(secrets, kind.secrets),
        timeout_s=10,
        concurrency=AT_ONCE,
    )
    context = SenderContext(clock=SystemClock(), http=http, public_url="https://example.com")
    sender = kind.open(configuration, context)
    messages = cycle([_make_message(token_of(number)) for number in range(DEVICES)])

    async def send() -> None:
        outcome = await sender.send(next(messages))
        assert isinstance(outcome, Delivered), outcome

    try:
        yield send
    finally:
        await sender.close()
        await http.close()


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
