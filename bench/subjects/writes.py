"""Durable writes beside the empty handler of the same server, each under the same load."""

from collections.abc import Iterator

from bench.load import Request
from bench.site import Site, on_postgres, on_sqlite
from bench.table import Row

EVENT = b'{"type":"POST_LIKE","user_id":"user-42","text":"Ana liked your photo of the harbour"}'
HEADERS = (("content-type", "application/json"),)
EMPTY = Request(method="POST", path="/bench/empty", headers=HEADERS, body=EVENT)
WRITE = Request(method="POST", path="/bench/write", headers=HEADERS, body=EVENT)


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite() as site:
        yield from _measure(site, seconds)
    with on_postgres() as site:
        yield from _measure(site, seconds)


def _measure(site: Site, seconds: float) -> Iterator[Row]:
    result, cpu_s = site.measure(EMPTY, seconds)
    empty = Row.of(f"empty handler, {site.name}", result, cpu_s=cpu_s)
    yield empty
    result, cpu_s = site.measure(WRITE, seconds)
    what = f"durable write of two statements, {site.name}"
    yield Row.of(what, result, empty, cpu_s=cpu_s)
