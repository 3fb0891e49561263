"""One message to all connected devices of a topic, beside what picows alone does.

Devices run in a process of their own and acknowledge each message, or every 16th by its sequence.
"""

import asyncio
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter, sleep

from bench.bare_sockets import Control
from bench.deployment import HOST, Deployment, on_sqlite
from bench.device_process import DeviceProcess, Received, connected_devices
from bench.installation import Installation
from bench.load import Load, Request, run_in_process
from bench.process import Server, free_ports, serving
from bench.table import Row, rate
from clarion.push.sql import topics
from clarion.store.statement import Unit

DEVICES = 1_000
TOPIC = "news"
AT_A_TIME = 5_000
CALM_RATE = 5.0
IN_FLIGHT = 64
ACK_EVERY = 16
# Until what was received last is acknowledged and stored.
SETTLE_S = 0.3
# To so many connected devices, if so many files may be open.
GROWTH = (100, 1_000, 10_000, 100_000)
GROWTH_MESSAGES = 64


@dataclass
class Messages:
    """A source of messages to the topic that say when they were due."""

    headers: tuple[tuple[str, str], ...]
    rate: float | None = None
    _began_at: float | None = field(default=None, init=False)

    def __call__(self, index: int) -> Request:
        if self._began_at is None:
            self._began_at = perf_counter()
        due = self._began_at + index / self.rate if self.rate else perf_counter()
        body = b'{"payload":{"aps":{"alert":"The harbour is closed today"},"at":%.6f}}' % due
        return Request(
            method="POST", path=f"/v1/topics/{TOPIC}/messages", headers=self.headers, body=body
        )


def measure(seconds: float) -> Iterator[Row]:
    """Measure both ways to acknowledge, as fast as it goes and calmly, and the limit of each."""
    with on_sqlite(devices=DEVICES) as deployment:
        asyncio.run(subscribe(deployment.installation, deployment.device_ids))
        limit = _measure_limit(seconds)
        for ack_every in (1, ACK_EVERY):
            with connected_devices(
                deployment.gateway_port, range(DEVICES), ack_every=ack_every
            ) as devices:
                publish(deployment, devices, 1.0)
                fast = publish(deployment, devices, seconds)
                calm = publish(deployment, devices, seconds, CALM_RATE)
            yield from _rows(ack_every, fast, calm, limit)
        yield from limit
    yield from _measure_growth()


def _measure_growth() -> Iterator[Row]:
    """Measure some messages to more and more devices: the cost of a delivery stays the same.

    A server leaves a part of the descriptors to its store and its HTTP listeners.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for count in sorted({min(wanted, most // 2) for wanted in GROWTH}):
        with on_sqlite(devices=count) as deployment:
            asyncio.run(subscribe(deployment.installation, deployment.device_ids))
            with connected_devices(deployment.gateway_port, range(count)) as devices:
                received, cpu_s = publish(deployment, devices, count=count, total=GROWTH_MESSAGES)
        yield row(f"{GROWTH_MESSAGES} messages to {count:,} devices", received, cpu_s)


def _rows(
    ack_every: int,
    fast: tuple[Received, float],
    calm: tuple[Received, float],
    limit: tuple[Row, Row],
) -> Iterator[Row]:
    how = "each acknowledged" if ack_every == 1 else f"every {ack_every}th acknowledged"
    to = f"to {DEVICES:,} devices, {how}"
    yield row(f"topic message {to}", *fast, limit[0])
    yield row(f"the same at {rate(CALM_RATE)}, {how}", *calm, limit[1])


def row(what: str, received: Received, cpu_s: float, limit: Row | None = None) -> Row:
    """Make the row of messages that were received; the ratio is that to the limit."""
    base = limit.throughput if limit else None
    return Row(
        what=what,
        throughput=received.throughput,
        p50_s=received.percentile(50),
        p99_s=received.percentile(99),
        cpu_s=cpu_s,
        ratio=received.throughput / base if base else None,
        note=f"{received.lost} devices disconnected" if received.lost else "deliveries",
    )


def publish(
    deployment: Deployment,
    devices: DeviceProcess,
    seconds: float = 60.0,
    at_rate: float | None = None,
    *,
    total: int | None = None,
    count: int = DEVICES,
) -> tuple[Received, float]:
    """Publish for so long, wait until all have arrived; return also the CPU time of a delivery."""
    before = deployment.server.usage().cpu_s
    load = Load(
        host=HOST, port=deployment.port, connections=4, streams=IN_FLIGHT // 4,
        duration_s=seconds, rate=at_rate, total=total,
    )  # fmt: skip
    result = run_in_process(load, Messages(deployment.installation.api_headers(), at_rate))
    assert result.by_status.keys() == {202}, result.by_status
    received = devices.wait_for(result.answered * count, within_s=120)
    sleep(SETTLE_S)
    return received, (deployment.server.usage().cpu_s - before) / received.count


def _measure_limit(seconds: float) -> tuple[Row, Row]:
    with ExitStack() as stack:
        bare, port, control = stack.enter_context(bare_sockets())
        devices = stack.enter_context(connected_devices(port, range(DEVICES)))
        fast = _send_bare(bare, control, devices, round(40 * seconds), 0.0)
        calm = _send_bare(bare, control, devices, round(CALM_RATE * seconds), CALM_RATE)
    return row(f"picows alone, to {DEVICES:,} devices", *fast), row(
        f"the same at {rate(CALM_RATE)}", *calm
    )


def _send_bare(
    bare: Server, control: Control, devices: DeviceProcess, messages: int, at_rate: float
) -> tuple[Received, float]:
    before = bare.usage().cpu_s
    control.send(messages, window=IN_FLIGHT, rate=at_rate)
    received = devices.wait_for(messages * DEVICES)
    return received, (bare.usage().cpu_s - before) / received.count


@contextmanager
def bare_sockets() -> Iterator[tuple[Server, int, Control]]:
    """Run picows alone for as long as the block lasts."""
    port, control_port = free_ports(2)
    command = [sys.executable, "-m", "bench.bare_sockets", str(port), str(control_port)]
    with serving(command, f"http://{HOST}:{port}/ready") as server:
        yield server, port, Control(control_port)


async def subscribe(installation: Installation, device_ids: list[str]) -> None:
    """Subscribe devices to the topic, in the store itself."""
    app_id = installation.app_id
    async with installation.opened() as engine:
        await engine.write(Unit(TOPIC, (topics.LOCK.guard(app_id=app_id, topic=TOPIC, now=0),)))
        for start in range(0, len(device_ids), AT_A_TIME):
            rows = [
                topics.SUBSCRIBE.bind(app_id=app_id, topic=TOPIC, device_id=device_id, now=0)
                for device_id in device_ids[start : start + AT_A_TIME]
            ]
            await engine.write(Unit(TOPIC, (topics.SUBSCRIBE.many(rows),)))
