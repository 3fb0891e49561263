"""Pushes to devices that are away: a provider's token, JSON, and a durable message each."""

from collections.abc import Iterator
from functools import partial

from bench.installation import token_of
from bench.load import Request
from bench.site import Site, on_postgres, on_sqlite
from bench.subjects.writes import EMPTY
from bench.table import Row

DEVICES = 10_000
PAYLOAD = b'{"aps":{"alert":{"title":"Ana","body":"liked your photo of the harbour"},"badge":3}}'


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite(devices=DEVICES) as site:
        yield from _measure(site, seconds)
    with on_postgres(devices=DEVICES) as site:
        yield from _measure(site, seconds)


def push_to_many(headers: tuple[tuple[str, str], ...], devices: int, index: int) -> Request:
    """Make a push to one device after the other."""
    path = f"/3/device/{token_of(index % devices)}"
    return Request(method="POST", path=path, headers=headers, body=PAYLOAD)


def _measure(site: Site, seconds: float) -> Iterator[Row]:
    result, cpu_s = site.measure(EMPTY, seconds)
    empty = Row.of(f"empty handler again, {site.name}", result, cpu_s=cpu_s)
    yield empty
    push = partial(push_to_many, site.installation.push_headers(), DEVICES)
    result, cpu_s = site.measure(push, seconds=30, total=DEVICES, warm_up_s=0)
    what = f"first push to each of {DEVICES:,} offline devices, {site.name}"
    yield Row.of(what, result, empty, cpu_s=cpu_s, note="none of them known in memory")
    result, cpu_s = site.measure(push, seconds, warm_up_s=0)
    what = f"more pushes to {DEVICES:,} offline devices, {site.name}"
    yield Row.of(what, result, empty, cpu_s=cpu_s)
