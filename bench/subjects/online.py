"""Pushes to connected devices, which run in a process of their own and acknowledge each message."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter

from bench.deployment import Deployment, on_sqlite
from bench.device_process import DeviceProcess, Received, connected_devices
from bench.installation import token_of
from bench.load import Request
from bench.subjects.writes import WRITE
from bench.table import Row, rate

DEVICES = 1_000
CALM_RATE = 500.0
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
    """Measure the throughput, beside a durable write, and then the latency at a calm rate."""
    with ExitStack() as stack:
        deployment = stack.enter_context(on_sqlite(devices=DEVICES))
        devices = stack.enter_context(connected_devices(deployment.gateway_port, range(DEVICES)))
        headers = deployment.installation.push_headers()
        _push(deployment, devices, StampedPushes(headers, DEVICES), seconds=1.0)
        result, cpu_s = deployment.measure_baseline(WRITE, seconds)
        limit = Row.of("durable write, without devices", result, cpu_s=cpu_s)
        yield _measure_throughput(deployment, devices, headers, seconds, limit)
        yield _measure_latency(deployment, devices, headers, seconds)
        yield limit


def _measure_throughput(
    deployment: Deployment,
    devices: DeviceProcess,
    headers: tuple[tuple[str, str], ...],
    seconds: float,
    limit: Row,
) -> Row:
    received, cpu_s = _push(deployment, devices, StampedPushes(headers, DEVICES), seconds)
    return Row(
        what=f"push to {DEVICES:,} connected devices until acknowledged, {deployment.name}",
        throughput=received.throughput,
        ratio=received.throughput / (limit.throughput or 1),
        p50_s=received.percentile(50),
        p99_s=received.percentile(99),
        cpu_s=cpu_s,
        note=_complaint(received),
    )


def _measure_latency(
    deployment: Deployment,
    devices: DeviceProcess,
    headers: tuple[tuple[str, str], ...],
    seconds: float,
) -> Row:
    pushes = StampedPushes(headers, DEVICES, CALM_RATE)
    received, cpu_s = _push(deployment, devices, pushes, seconds, CALM_RATE)
    p99_s = received.percentile(99)
    missed = f"target of p99 < {TARGET_P99_S * 1e3:.0f} ms missed" if p99_s > TARGET_P99_S else ""
    return Row(
        what=f"from provider to device at {rate(CALM_RATE)}, {deployment.name}",
        throughput=received.throughput,
        p50_s=received.percentile(50),
        p99_s=p99_s,
        cpu_s=cpu_s,
        note=", ".join(filter(None, ["open loop", missed, _complaint(received)])),
    )


def _push(
    deployment: Deployment,
    devices: DeviceProcess,
    pushes: StampedPushes,
    seconds: float,
    at_rate: float | None = None,
) -> tuple[Received, float]:
    """Push for so long and wait until all have arrived; return also the CPU time for one."""
    before = deployment.server.usage().cpu_s
    result, _ = deployment.measure(pushes, seconds, rate=at_rate, warm_up_s=0)
    assert result.by_status.keys() == {200}, result.by_status
    received = devices.wait_for(result.answered)
    return received, (deployment.server.usage().cpu_s - before) / received.count


def _complaint(received: Received) -> str:
    return f"{received.lost} devices disconnected" if received.lost else ""
