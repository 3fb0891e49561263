"""What connections cost: the memory of an idle one, and the delivery of a backlog on reconnect."""

import resource
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

from bench.deployment import HOST, Deployment, on_sqlite
from bench.device_process import connected_devices
from bench.load import Load, run_in_process
from bench.process import Server
from bench.subjects.fan_out import bare_sockets
from bench.subjects.offline import push_to_many
from bench.table import Row, size

IDLE = (5_000, 100_000)
RECONNECTING = 5
STORED = 1_000


def measure(seconds: float) -> Iterator[Row]:
    """Measure both; how long does not matter here."""
    del seconds
    for count in IDLE:
        yield from _measure_idle(count)
    yield _measure_reconnecting()


def _measure_idle(wanted: int) -> Iterator[Row]:
    """Measure what connecting and an idle connection cost, beside picows alone."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A server leaves a part of the descriptors to its store and its HTTP listeners.
    count = min(wanted, most // 2)
    with bare_sockets() as (bare, port, _):
        limit = _connect("picows alone", bare, port, count)
    with on_sqlite(devices=count) as deployment:
        ours = _connect(
            "devices connect and stay idle", deployment.server, deployment.gateway_port, count
        )
    few = f", no more than {most:,} files are allowed" if count < wanted else ""
    yield replace(
        ours, ratio=(ours.throughput or 0) / (limit.throughput or 1), note=ours.note + few
    )
    yield limit


def _connect(what: str, server: Server, port: int, count: int) -> Row:
    before = server.usage()
    with connected_devices(port, range(count)) as devices:
        after = server.usage()
    each = (after.rss_bytes - before.rss_bytes) / count
    return Row(
        what=f"{count:,}: {what}",
        throughput=count / (devices.connected_at - devices.began_at),
        cpu_s=(after.cpu_s - before.cpu_s) / count,
        note=f"{size(each)} per connection",
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
