"""Pushes to offline devices: a provider token, JSON, and a durable message each."""

from collections.abc import Iterator
from functools import partial

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.installation import token_of
from bench.load import Request
from bench.subjects.writes import EMPTY
from bench.table import Row

DEVICES = 10_000
PAYLOAD = b'{"aps":{"alert":{"title":"Ana","body":"liked your photo of the harbour"},"badge":3}}'


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite(devices=DEVICES) as deployment:
        yield from _measure(deployment, seconds)
    with on_postgres(devices=DEVICES) as deployment:
        yield from _measure(deployment, seconds)


def push_to_many(headers: tuple[tuple[str, str], ...], devices: int, index: int) -> Request:
    """Make a push to one device after another."""
    path = f"/3/device/{token_of(index % devices)}"
    return Request(method="POST", path=path, headers=headers, body=PAYLOAD)


def _measure(deployment: Deployment, seconds: float) -> Iterator[Row]:
    result, cpu_s = deployment.measure_baseline(EMPTY, seconds)
    empty = Row.of(f"empty handler again, {deployment.name}", result, cpu_s=cpu_s)
    yield empty
    push = partial(push_to_many, deployment.installation.push_headers(), DEVICES)
    result, cpu_s = deployment.measure(push, seconds=30, total=DEVICES, warm_up_s=0)
    what = f"first push to each of {DEVICES:,} offline devices, {deployment.name}"
    yield Row.of(what, result, empty, cpu_s=cpu_s, note="none of them in the cache")
    result, cpu_s = deployment.measure(push, seconds, warm_up_s=0)
    what = f"more pushes to {DEVICES:,} offline devices, {deployment.name}"
    yield Row.of(what, result, empty, cpu_s=cpu_s)
