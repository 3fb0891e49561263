"""Pushes to devices that are connected, in a process of their own, and acknowledge what comes."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter

from bench.fleet import Fleet, Received, sailing
from bench.installation import token_of
from bench.load import Request
from bench.site import Site, on_sqlite
from bench.table import Row, rate

DEVICES = 1_000
TARGET_P99_S = 0.5


@dataclass
class StampedPushes:
    """A source of pushes that say when they were due, so that a late start counts as latency."""

    headers: tuple[tuple[str, str], ...]
    devices: int
    rate: float | None = None
    _began_at: float | None = field(default=None, init=False)

    def __call__(self, index: int) -> Request:
        if self._began_at is None:
            self._began_at = perf_counter()
        due = self._began_at + index / self.rate if self.rate else perf_counter()
        return Request(
            method="POST",
            path=f"/3/device/{token_of(index % self.devices)}",
            headers=self.headers,
            body=b'{"aps":{"alert":{"title":"Ana","body":"liked your photo"}},"at":%.6f}' % due,
        )


def measure(seconds: float) -> Iterator[Row]:
    """Measure how many get through, and then how long one takes at half of that."""
    with ExitStack() as stack:
        site = stack.enter_context(on_sqlite(devices=DEVICES))
        fleet = stack.enter_context(sailing(site.gateway_port, range(DEVICES)))
        headers = site.installation.push_headers()
        _push(site, fleet, StampedPushes(headers, DEVICES), seconds=1.0)
        most = _measure_throughput(site, fleet, headers, seconds)
        yield most
        yield _measure_latency(site, fleet, headers, (most.throughput or 0) / 2, seconds)


def _measure_throughput(
    site: Site, fleet: Fleet, headers: tuple[tuple[str, str], ...], seconds: float
) -> Row:
    received, cpu_s = _push(site, fleet, StampedPushes(headers, DEVICES), seconds)
    return Row(
        what=f"push to {DEVICES:,} connected devices until acknowledged, {site.name}",
        throughput=received.count / (received.last_at - received.first_at),
        p50_s=received.percentile(50),
        p99_s=received.percentile(99),
        cpu_s=cpu_s,
        note=_complaint(received),
    )


def _measure_latency(
    site: Site, fleet: Fleet, headers: tuple[tuple[str, str], ...], half: float, seconds: float
) -> Row:
    received, cpu_s = _push(site, fleet, StampedPushes(headers, DEVICES, half), seconds, half)
    p99_s = received.percentile(99)
    missed = f"target of p99 < {TARGET_P99_S * 1e3:.0f} ms missed" if p99_s > TARGET_P99_S else ""
    return Row(
        what=f"from provider to device at {rate(half)}, {site.name}",
        throughput=received.count / (received.last_at - received.first_at),
        p50_s=received.percentile(50),
        p99_s=p99_s,
        cpu_s=cpu_s,
        note=", ".join(filter(None, ["open loop", missed, _complaint(received)])),
    )


def _push(
    site: Site, fleet: Fleet, pushes: StampedPushes, seconds: float, at_rate: float | None = None
) -> tuple[Received, float]:
    """Push for so long and wait until all has arrived; gives the CPU time for one of them too."""
    before = site.server.usage().cpu_s
    result, _ = site.measure(pushes, seconds, rate=at_rate, warm_up_s=0)
    assert result.by_status.keys() == {200}, result.by_status
    received = fleet.wait_for(result.answered)
    return received, (site.server.usage().cpu_s - before) / received.count


def _complaint(received: Received) -> str:
    return f"{received.lost} devices disconnected" if received.lost else ""
