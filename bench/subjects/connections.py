"""What connections cost: the memory of an idle one, and the delivery of a backlog on reconnect."""

import resource
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.deployment import HOST, Deployment, on_sqlite
from bench.device_process import connected_devices
from bench.load import Load, run_in_process
from bench.subjects.offline import push_to_many
from bench.table import Row, size

IDLE = 10_000
# Files that a process needs beside its connections.
OTHER_FILES = 200
TARGET_BYTES = 12 * 1024
RECONNECTING = 5
STORED = 1_000


def measure(seconds: float) -> Iterator[Row]:
    """Measure both; how long does not matter here."""
    del seconds
    yield _measure_idle()
    yield _measure_reconnecting()


def _measure_idle() -> Row:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(IDLE, most - OTHER_FILES)
    with on_sqlite(devices=count) as deployment:
        before = deployment.server.usage()
        with connected_devices(deployment.gateway_port, range(count)) as devices:
            after = deployment.server.usage()
            each = (after.rss_bytes - before.rss_bytes) / count
            return Row(
                what=f"{count:,} devices connect and stay idle",
                throughput=count / (devices.connected_at - devices.began_at),
                cpu_s=(after.cpu_s - before.cpu_s) / count,
                note=f"{size(each)} per connection (target {size(TARGET_BYTES)})"
                + (f", no more than {most:,} files are allowed" if count < IDLE else ""),
            )


def _measure_reconnecting() -> Row:
    with on_sqlite(devices=RECONNECTING) as deployment:
        push = partial(push_to_many, deployment.installation.push_headers(), RECONNECTING)
        total = RECONNECTING * STORED
        load = Load(host=HOST, port=deployment.port, connections=4, duration_s=60, total=total)
        result = run_in_process(load, push)
        assert result.by_status == {200: total}, result.by_status
        before = deployment.server.usage().cpu_s
        times = sorted(_reconnect(deployment, number) for number in range(RECONNECTING))
        return Row(
            what=f"a device reconnects to {STORED:,} stored messages",
            throughput=STORED / median(times),
            p50_s=median(times),
            p99_s=times[-1],
            cpu_s=(deployment.server.usage().cpu_s - before) / total,
            note="p50 and p99 are the time until all are delivered and acknowledged",
        )


def _reconnect(deployment: Deployment, number: int) -> float:
    with connected_devices(deployment.gateway_port, range(number, number + 1)) as devices:
        return devices.wait_for(STORED).last_at - devices.began_at
