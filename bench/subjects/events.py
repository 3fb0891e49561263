"""Events until they are in the inboxes: accepted, decided, rendered, and visible."""

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.installation import user_of
from bench.load import Request, Source
from bench.subjects.inbox import IN_FLIGHT, measure_empty
from bench.table import Row
from clarion.store.opening import sqlite_path
from clarion.store.sqlite.engine import migrate
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import Row as StoredRow
from clarion.store.statement import statement

USERS = 1_000
EVENTS = 20_000
BATCH = 100
LOOK_EVERY_S = 0.05
WAIT_LIMIT_S = 120.0
# What is left of an event.
READ = {
    table: statement(f"read_{table}", f"SELECT * FROM {table}")  # noqa: S608
    for table in ("events", "notifications", "deliveries", "inboxes")
}
COUNT = statement("count_visible", "SELECT COUNT(*) FROM notifications WHERE is_shown = 1")


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite(users=USERS) as deployment:
        yield from _measure(deployment, seconds)
    with on_postgres(users=USERS) as deployment:
        yield from _measure(deployment, seconds)


def _measure(deployment: Deployment, seconds: float) -> Iterator[Row]:
    headers = deployment.installation.api_headers()
    # The first few open what is opened at first use.
    deployment.measure(partial(one, headers), 30, total=500, warm_up_s=0)
    asyncio.run(wait(deployment, 500))
    for in_flight in IN_FLIGHT:
        empty = measure_empty(deployment, seconds, in_flight)
        yield empty
        what = f"{EVENTS:,} events to the inbox, {in_flight} in flight, {deployment.name}"
        yield run(deployment, what, partial(one, headers), 1, empty, in_flight)
    what = f"{EVENTS:,} events to the inbox, {BATCH} per request, {deployment.name}"
    yield run(deployment, what, partial(many, headers), BATCH, empty, IN_FLIGHT[-1])
    if sqlite_path(deployment.installation.settings.database_url):
        yield asyncio.run(_commit_again(deployment))


async def _commit_again(deployment: Deployment) -> Row:
    """Write the rows that the events became into another database, and nothing else."""
    rows: dict[str, Sequence[StoredRow]] = {}
    async with deployment.installation.opened() as engine:
        rows = {table: await engine.fetch(read) for table, read in READ.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bare.db"
        migrate(path)
        connection = open_connection(path)
        began, cpu_s = time.perf_counter(), time.process_time()
        count = len(rows["events"])
        for start in range(0, count, BATCH):
            connection.execute("BEGIN IMMEDIATE")
            for table, some in rows.items():
                part = some[start : start + BATCH]
                if part:
                    marks = ", ".join("?" * len(part[0]))
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", part)  # noqa: S608
            connection.execute("COMMIT")
        took, used = time.perf_counter() - began, time.process_time() - cpu_s
        connection.close()
    return Row(
        what=f"bare commits of the rows of {BATCH} events each, {deployment.name}",
        throughput=count / took,
        cpu_s=used / count,
        note="INSERT alone: no request, no decision, no job",
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
    deployment: Deployment,
    what: str,
    source: Source,
    each: int,
    empty: Row,
    in_flight: int,
    *,
    total: int = EVENTS,
) -> Row:
    before = asyncio.run(wait(deployment, 0))
    cpu = deployment.server.usage().cpu_s
    started = time.perf_counter()
    result, _ = deployment.measure(
        source, 300, total=total // each, warm_up_s=0, in_flight=in_flight
    )
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
