"""What connections cost: the memory of one that is idle, and the way back of one with a backlog."""

import resource
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.fleet import sailing
from bench.load import Load, run_in_process
from bench.site import HOST, Site, on_sqlite
from bench.subjects.offline import push_to_many
from bench.table import Row, size

IDLE = 10_000
# Files that a process needs beside its connections.
OTHER_FILES = 200
TARGET_BYTES = 12 * 1024
RETURNING = 5
STORED = 1_000


def measure(seconds: float) -> Iterator[Row]:
    """Measure both; how long does not matter here."""
    del seconds
    yield _measure_idle()
    yield _measure_returning()


def _measure_idle() -> Row:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(IDLE, most - OTHER_FILES)
    with on_sqlite(devices=count) as site:
        before = site.server.usage()
        with sailing(site.gateway_port, range(count)) as fleet:
            after = site.server.usage()
            each = (after.rss_bytes - before.rss_bytes) / count
            return Row(
                what=f"{count:,} devices connect and stay",
                throughput=count / (fleet.connected_at - fleet.began_at),
                cpu_s=(after.cpu_s - before.cpu_s) / count,
                note=f"{size(each)} a connection (target {size(TARGET_BYTES)})"
                + (f", no more than {most:,} files are allowed" if count < IDLE else ""),
            )


def _measure_returning() -> Row:
    with on_sqlite(devices=RETURNING) as site:
        push = partial(push_to_many, site.installation.push_headers(), RETURNING)
        total = RETURNING * STORED
        load = Load(host=HOST, port=site.port, connections=4, duration_s=60, total=total)
        result = run_in_process(load, push)
        assert result.by_status == {200: total}, result.by_status
        before = site.server.usage().cpu_s
        times = sorted(_return(site, number) for number in range(RETURNING))
        return Row(
            what=f"a device returns to {STORED:,} stored messages",
            throughput=STORED / median(times),
            p50_s=median(times),
            p99_s=times[-1],
            cpu_s=(site.server.usage().cpu_s - before) / total,
            note="p50 and p99 are the time until all are there and acknowledged",
        )


def _return(site: Site, number: int) -> float:
    with sailing(site.gateway_port, range(number, number + 1)) as fleet:
        return fleet.wait_for(STORED).last_at - fleet.began_at
