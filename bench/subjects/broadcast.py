"""One message to a topic with very many offline subscribers: it must be written once."""

import asyncio
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from time import perf_counter

from bench.deployment import HOST, Deployment, on_sqlite
from bench.installation import Installation
from bench.table import Row
from clarion.push.sql import topics
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement

SUBSCRIBERS = 100_000
AT_A_TIME = 5_000
TOPIC = "news"
MESSAGES = 50
BODY = json.dumps({"payload": {"aps": {"alert": "The harbour is closed today"}}})
TABLES = statement("bench_tables", "SELECT name FROM sqlite_master WHERE type = 'table'")


def measure(seconds: float) -> Iterator[Row]:
    """Measure some messages, one after the other; how long does not matter here."""
    del seconds
    with on_sqlite() as deployment:
        rows_before = asyncio.run(_subscribe(deployment.installation))
        before = deployment.server.usage().cpu_s
        times = sorted(_publish(deployment) for _ in range(MESSAGES))
        cpu_s = (deployment.server.usage().cpu_s - before) / MESSAGES
        rows = (asyncio.run(_count(deployment.installation)) - rows_before) / MESSAGES
    yield Row(
        what=f"message to a topic with {SUBSCRIBERS:,} offline subscribers, SQLite",
        throughput=MESSAGES / sum(times),
        p50_s=times[MESSAGES // 2],
        p99_s=times[-1],
        cpu_s=cpu_s,
        note=f"{rows:g} rows per message, one at a time, HTTP/1.1",
    )


def _publish(deployment: Deployment) -> float:
    headers = dict(deployment.installation.api_headers())
    connection = HTTPConnection(HOST, deployment.port)
    connection.connect()
    began = perf_counter()
    connection.request("POST", f"/v1/topics/{TOPIC}/messages", BODY, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 202, answer.status
    return perf_counter() - began


async def _subscribe(installation: Installation) -> int:
    """Subscribe the devices to the topic; return how many rows the store has then."""
    app_id = installation.app_id
    async with installation.opened() as engine:
        await engine.write(Unit(TOPIC, (topics.LOCK.guard(app_id=app_id, topic=TOPIC, now=0),)))
        for start in range(0, SUBSCRIBERS, AT_A_TIME):
            rows = [
                topics.SUBSCRIBE.bind(
                    app_id=app_id, topic=TOPIC, device_id=f"device-{number}", now=0
                )
                for number in range(start, start + AT_A_TIME)
            ]
            await engine.write(Unit(TOPIC, (topics.SUBSCRIBE.many(rows),)))
        return await _count_rows(engine)


async def _count(installation: Installation) -> int:
    async with installation.opened() as engine:
        return await _count_rows(engine)


async def _count_rows(engine: Engine) -> int:
    """Count the rows of every table."""
    tables = [name for (name,) in await engine.fetch(TABLES)]
    counts = [statement(f"count_{name}", f'SELECT COUNT(*) FROM "{name}"') for name in tables]  # noqa: S608 - of the schema
    return sum([(await engine.fetch(count))[0][0] for count in counts])
