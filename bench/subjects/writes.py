"""Durable writes and an empty handler, each under the same load."""

from collections.abc import Iterator

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.load import Request
from bench.table import Row

EVENT = b'{"type":"POST_LIKE","user_id":"user-42","text":"Ana liked your photo of the harbour"}'
HEADERS = (("content-type", "application/json"),)
EMPTY = Request(method="POST", path="/bench/empty", headers=HEADERS, body=EVENT)
WRITE = Request(method="POST", path="/bench/write", headers=HEADERS, body=EVENT)


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite() as deployment:
        yield from _measure(deployment, seconds)
    with on_postgres() as deployment:
        yield from _measure(deployment, seconds)


def _measure(deployment: Deployment, seconds: float) -> Iterator[Row]:
    result, cpu_s = deployment.measure_baseline(EMPTY, seconds)
    empty = Row.of(f"empty handler, {deployment.name}", result, cpu_s=cpu_s)
    yield empty
    result, cpu_s = deployment.measure_baseline(WRITE, seconds)
    what = f"durable write of two statements, {deployment.name}"
    yield Row.of(what, result, empty, cpu_s=cpu_s)
