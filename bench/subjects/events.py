"""Events until they are in the inboxes: accepted, decided, rendered, and visible."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.installation import user_of
from bench.load import Request
from bench.subjects.writes import EMPTY
from bench.table import Row
from clarion.store.statement import statement

USERS = 1_000
EVENTS = 20_000
BATCH = 100
LOOK_EVERY_S = 0.05
WAIT_LIMIT_S = 120.0
COUNT = statement("count_visible", "SELECT COUNT(*) FROM notifications WHERE is_shown = 1")


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite(users=USERS) as deployment:
        yield from _measure(deployment, seconds)
    with on_postgres(users=USERS) as deployment:
        yield from _measure(deployment, seconds)


def _measure(deployment: Deployment, seconds: float) -> Iterator[Row]:
    result, cpu_s = deployment.measure_baseline(EMPTY, seconds)
    empty = Row.of(f"empty handler once more, {deployment.name}", result, cpu_s=cpu_s)
    yield empty
    # The first few open what is opened at first use.
    deployment.measure(
        partial(one, deployment.installation.api_headers()), 30, total=500, warm_up_s=0
    )
    asyncio.run(wait(deployment, 500))
    what = f"{EVENTS:,} events to the inbox, one per request, {deployment.name}"
    yield run(
        deployment, what, partial(one, deployment.installation.api_headers()), EVENTS, 1, empty
    )
    what = f"{EVENTS:,} events to the inbox, {BATCH} per request, {deployment.name}"
    yield run(
        deployment, what, partial(many, deployment.installation.api_headers()), EVENTS, BATCH, empty
    )


def one(headers: tuple[tuple[str, str], ...], index: int) -> Request:
    """Make a request with one event."""
    body = json.dumps(_event(index)).encode()
    return Request(method="POST", path="/v1/events", headers=headers, body=body)


def many(headers: tuple[tuple[str, str], ...], index: int) -> Request:
    """Make a request with a hundred events."""
    events = [_event(index * BATCH + each) for each in range(BATCH)]
    body = json.dumps({"events": events}).encode()
    return Request(method="POST", path="/v1/events/batch", headers=headers, body=body)


def _event(index: int) -> dict[str, object]:
    return {
        "type": "POST_COMMENT",
        "recipient": {"user_id": user_of(index % USERS)},
        "actor": {"id": f"actor-{index % 97}", "name": "Ana"},
        "target": {"id": f"post-{index}", "type": "post"},
        "data": {"snippet": "What a harbour!"},
    }


def run(
    deployment: Deployment, what: str, source: object, total: int, each: int, empty: Row
) -> Row:
    before = asyncio.run(wait(deployment, 0))
    cpu = deployment.server.usage().cpu_s
    started = time.perf_counter()
    result, _ = deployment.measure(source, 300, total=total // each, warm_up_s=0)  # type: ignore[arg-type]
    accepted_s = time.perf_counter() - started
    asyncio.run(wait(deployment, before + total))
    took = time.perf_counter() - started
    rate = total / took
    return Row(
        what=what,
        throughput=rate,
        p50_s=result.percentile(50),
        p99_s=result.percentile(99),
        cpu_s=(deployment.server.usage().cpu_s - cpu) / total,
        ratio=rate / empty.throughput if empty.throughput else None,
        note=f"all accepted after {accepted_s:.1f} s, in the inboxes after {took:.1f} s"
        + "".join(f", {status}: {n}" for status, n in result.by_status.items() if status >= 300),
    )


async def wait(deployment: Deployment, count: int) -> int:
    """Wait until so many notifications are visible, and return how many are."""
    give_up = time.monotonic() + WAIT_LIMIT_S
    async with deployment.installation.opened() as engine:
        while True:
            shown: int = (await engine.fetch(COUNT))[0][0]
            if shown >= count:
                return shown
            if time.monotonic() > give_up:
                msg = f"{shown:,} of {count:,} are in the inboxes"
                raise TimeoutError(msg)
            await asyncio.sleep(LOOK_EVERY_S)
