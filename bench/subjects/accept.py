"""Accepting a push, beside what limits it in the same run: an empty handler and a bare commit.

The pushes are for devices in no order, as those of a real provider are. Rates of the first two rows
of each block are the limits; the ratio of a push is to the bare handler, and its note has the ratio
to the bare commits.
"""

import re
from collections.abc import Iterator
from functools import partial

from bench.bare_commits import measure_commits
from bench.deployment import Deployment, on_sqlite
from bench.load import Request
from bench.metrics import read_metrics
from bench.subjects.offline import PAYLOAD, push_to_many
from bench.subjects.writes import EVENT, HEADERS
from bench.table import Row

DEVICES = 10_000
IN_FLIGHT = (64, 512)
# Pushes go to so many of the devices, of whom there are few or many.
SOME = 1_000
REGISTERED = (1_000, 1_000_000)
BARE = Request(method="POST", path="/bench/bare", headers=HEADERS, body=EVENT)


def measure(seconds: float) -> Iterator[Row]:
    """Measure with 64 and with 512 pushes at a time, then with few and with many devices."""
    with on_sqlite(devices=DEVICES) as deployment:
        push = partial(push_in_no_order, deployment.installation.push_headers(), DEVICES)
        deployment.measure(push, seconds=60, total=DEVICES, warm_up_s=0)  # each is cached then
        for in_flight in IN_FLIGHT:
            yield from _measure_at(deployment, in_flight, seconds)
    few: Row | None = None
    for registered in REGISTERED:
        row = _measure_among(registered, seconds, few)
        few = few or row
        yield row


def push_in_no_order(headers: tuple[tuple[str, str], ...], devices: int, index: int) -> Request:
    """Make a push to each device in turn; neighbours in time are none in the store."""
    return push_to_many(headers, devices, index * 7919)


def push_to_some(headers: tuple[tuple[str, str], ...], registered: int, index: int) -> Request:
    """Make a push to one of a thousand devices that lie anywhere among all."""
    return push_to_many(headers, registered, index * 7919 % SOME * (registered // SOME))


def _measure_at(deployment: Deployment, in_flight: int, seconds: float) -> Iterator[Row]:
    result, cpu_s = deployment.measure_baseline(BARE, seconds, in_flight=in_flight)
    empty = Row.of(f"bare ASGI handler, {in_flight} in flight", result, cpu_s=cpu_s)
    yield empty
    push = partial(push_in_no_order, deployment.installation.push_headers(), DEVICES)
    before = _read_commits(deployment)
    result, cpu_s = deployment.measure(push, seconds, in_flight=in_flight)
    units, batches = (b - a for a, b in zip(before, _read_commits(deployment), strict=True))
    bare = measure_commits(max(1, round(units / batches)), DEVICES, PAYLOAD, seconds)
    yield bare
    note = f"{result.throughput / (bare.throughput or 1):.2f}× of the bare commits"
    what = f"push accepted, {in_flight} in flight, {DEVICES:,} offline devices"
    yield Row.of(what, result, empty, cpu_s=cpu_s, note=note)


def _measure_among(registered: int, seconds: float, few: Row | None) -> Row:
    with on_sqlite(devices=registered) as deployment:
        push = partial(push_to_some, deployment.installation.push_headers(), registered)
        result, cpu_s = deployment.measure(push, seconds)
    note = ""
    if few is not None and few.cpu_s:
        note = f"CPU {cpu_s / few.cpu_s:.2f}× of that with {REGISTERED[0]:,}"
    what = f"pushes to {SOME:,} of {registered:,} registered devices"
    return Row.of(what, result, few, cpu_s=cpu_s, note=note)


def _read_commits(deployment: Deployment) -> tuple[float, float]:
    """Return how many units and batches the server has committed."""
    text = read_metrics(deployment.port)
    names = ("clarion_store_units_total", "clarion_store_batches_total")
    units, batches = (re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0] for name in names)
    return float(units), float(batches)
