"""Messages through the senders of the channels, beside a bare client of the same library.

The senders run in this process, as they do in the server; its CPU time is the one that is shown.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import NamedTuple

import msgspec
import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pyreqwest.client import ClientBuilder

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
WARM_UP_S = 0.5
TARGET_RATIO = 0.5
Work = Callable[[], Awaitable[None]]


class Service(NamedTuple):
    """A push service that accepts everything."""

    url: str
    ca_path: str


class Measured(NamedTuple):
    """What came of work that was done over and over."""

    throughput: float
    cpu_s: float
    p50_s: float
    p99_s: float


def measure(seconds: float) -> Iterator[Row]:
    """Measure the bare client, and then each sender against the same server."""
    with _push_service() as service:
        bare = _row("bare HTTP/2 client", uvloop.run(_measure_bare(service, seconds)), None)
        yield bare
        for kind, settings, secrets in _providers(service):
            found = uvloop.run(_measure_sender(kind, settings, secrets, seconds))
            yield _row(f"push through {kind.name}, answered at once", found, bare)


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


async def _measure_bare(service: Service, seconds: float) -> Measured:
    """Measure the library alone: the same body and headers, put together beforehand."""
    url, body = f"{service.url}/3/device/{'ab' * 32}", build_push_payload(_make_message())
    headers = {"authorization": "bearer " + "x" * 180, "apns-topic": "com.example.app"}
    certificate = Path(service.ca_path).read_bytes()  # noqa: ASYNC240
    builder = ClientBuilder().no_proxy().http2(enable=True)
    async with builder.add_root_certificate_pem(certificate).build() as client:

        async def post() -> None:
            response = await client.post(url).headers(headers).body_bytes(body).build().send()
            assert (response.status, response.version) == (200, "HTTP/2.0")

        return await _repeat(post, seconds)


async def _measure_sender(
    kind: Kind, settings: dict[str, str], secrets: dict[str, str], seconds: float
) -> Measured:
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
    message = _make_message()

    async def send() -> None:
        outcome = await sender.send(message)
        assert isinstance(outcome, Delivered), outcome

    try:
        return await _repeat(send, seconds)
    finally:
        await sender.close()
        await http.close()


async def _repeat(work: Work, seconds: float) -> Measured:
    """Do the work over and over, 64 at once; return the rate, the CPU time and the latencies."""
    await _work_until(work, perf_counter() + WARM_UP_S)
    began_at, began_cpu = perf_counter(), process_time()
    times = await _work_until(work, began_at + seconds)
    took_s, cpu_s = perf_counter() - began_at, process_time() - began_cpu
    percentiles = quantiles(times, n=100)
    return Measured(len(times) / took_s, cpu_s / len(times), percentiles[49], percentiles[98])


async def _work_until(work: Work, end: float) -> list[float]:
    times: list[float] = []

    async def repeat() -> None:
        while (began_at := perf_counter()) < end:
            await work()
            times.append(perf_counter() - began_at)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(repeat())
    return times


def _row(what: str, found: Measured, bare: Row | None) -> Row:
    ratio = found.throughput / bare.throughput if bare and bare.throughput else None
    missed = ratio is not None and ratio < TARGET_RATIO
    return Row(
        what=what,
        throughput=found.throughput,
        p50_s=found.p50_s,
        p99_s=found.p99_s,
        cpu_s=found.cpu_s,
        ratio=ratio,
        note=f"target of {TARGET_RATIO}× missed" if missed else "",
    )


def _make_message() -> OutgoingMessage:
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
        address=Address("device", "ab" * 32),
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
