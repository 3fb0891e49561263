"""One and two processes on PostgreSQL: what a push and a read cost, and how many there are."""

import time
from collections.abc import Iterator
from functools import partial

from bench.deployment import Deployment, on_postgres
from bench.installation import user_of
from bench.load import Request
from bench.metrics import read_metrics
from bench.subjects.offline import DEVICES, push_to_many
from bench.table import Row

COUNTS = (1, 2)
READY_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1


def measure(seconds: float) -> Iterator[Row]:
    """Measure the same with each number of processes; ratios are to one process."""
    alone: list[Row | None] = [None, None]
    for count in COUNTS:
        with on_postgres(devices=DEVICES, users=1, processes=count) as deployment:
            _wait_for_all(deployment, count)
            rows = list(_measure(deployment, seconds, alone))
        yield from rows
        alone = list(rows) if count == 1 else alone


def _measure(deployment: Deployment, seconds: float, alone: list[Row | None]) -> Iterator[Row]:
    push = partial(push_to_many, deployment.installation.push_headers(), DEVICES)
    result, cpu_s = deployment.measure(push, seconds)
    what = f"pushes to {DEVICES:,} offline devices, {deployment.name}"
    yield Row.of(what, result, alone[0], cpu_s=cpu_s)
    headers = deployment.installation.api_headers()
    page = Request(
        method="GET", path=f"/v1/users/{user_of(0)}/notifications", headers=headers, body=b""
    )
    result, cpu_s = deployment.measure(page, seconds)
    yield Row.of(f"pages of an empty inbox, {deployment.name}", result, alone[1], cpu_s=cpu_s)


def _wait_for_all(deployment: Deployment, count: int) -> None:
    """Wait until each process serves; one of several says how many do."""
    give_up = time.monotonic() + READY_WITHIN_S
    while count > 1 and f"\nclarion_processes {count}\n" not in read_metrics(deployment.port):
        if time.monotonic() > give_up:
            msg = f"{count} processes were not ready within {READY_WITHIN_S:g} s"
            raise TimeoutError(msg)
        time.sleep(LOOK_EVERY_S)
