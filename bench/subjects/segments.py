"""Counts of segments with as many matches, in a small and a very large directory."""

import asyncio
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from time import perf_counter

from bench.deployment import HOST, Deployment, on_postgres, on_sqlite
from bench.installation import Installation
from bench.table import Row
from clarion.store.statement import Row as Values
from clarion.store.statement import Step, Unit, statement

SMALL = 10_000
LARGE = 1_000_000
MATCHES = 1_000
AT_A_TIME = 5_000
COUNTS = 100
WARM_UP = 20
START_MS = 1_700_000_000_000
# `{size}` is a tag, and an attribute that has no other value, of 1,000 users all over the
# directory. The other conditions are true for every second user.
FILTERS = {
    "tag": "tag = '{size}'",
    "rare and two frequent": "language = 'de' and attributes.plan = 'pro' and tag = '{size}'",
    "range and a frequent tag": "attributes.{size} >= 0 and tag = 'half'",
}
ADD = statement(
    "add_bench_user",
    """INSERT INTO users (app_id, id, language, timezone, status, tags, attributes, preferences,
    created_at, updated_at, version)
    VALUES (:app_id, :id, :language, 'UTC', 'active', '[]', :attributes, '{}', :now, :now, 1)""",
)
TAG = statement(
    "add_bench_tag",
    "INSERT INTO user_tags (app_id, tag, user_id) VALUES (:app_id, :tag, :user_id)",
)
MARK = statement(
    "mark_bench_user",
    "UPDATE users SET attributes = :attributes WHERE app_id = :app_id AND id = :id",
)
ANALYZE = statement("analyze_bench", "ANALYZE")


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines; how long does not matter here."""
    del seconds
    with on_sqlite() as deployment:
        yield from _measure(deployment)
    with on_postgres() as deployment:
        yield from _measure(deployment)


def _measure(deployment: Deployment) -> Iterator[Row]:
    asyncio.run(_fill(deployment, 0, SMALL))
    small = {what: _count(deployment, what, SMALL, None) for what in FILTERS}
    yield from small.values()
    asyncio.run(_fill(deployment, SMALL, LARGE))
    for what, before in small.items():
        yield _count(deployment, what, LARGE, before)


def _count(deployment: Deployment, what: str, size: int, before: Row | None) -> Row:
    body = json.dumps({"filter": FILTERS[what].format(size=_name(size))})
    connection = HTTPConnection(HOST, deployment.port)
    for _ in range(WARM_UP):
        _ask(deployment, connection, body)
    used = deployment.server.usage().cpu_s
    times = sorted(_ask(deployment, connection, body) for _ in range(COUNTS))
    cpu_s = (deployment.server.usage().cpu_s - used) / COUNTS
    connection.close()
    median = times[COUNTS // 2]
    note = f"{MATCHES:,} matches, one at a time"
    if before is not None and before.p50_s and before.cpu_s:
        ratios = f"p50 {median / before.p50_s:.2f}×, CPU {cpu_s / before.cpu_s:.2f}×"
        note = f"{ratios} that of the small directory"
    return Row(
        what=f"segment count: {what}, {size:,} users, {deployment.name}",
        throughput=COUNTS / sum(times),
        p50_s=median,
        p99_s=times[-2],
        cpu_s=cpu_s,
        note=note,
    )


def _ask(deployment: Deployment, connection: HTTPConnection, body: str) -> float:
    headers = dict(deployment.installation.api_headers())
    began = perf_counter()
    connection.request("POST", "/v1/segments/count", body, headers)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert found == {"count": MATCHES}, found
    return perf_counter() - began


async def _fill(deployment: Deployment, first: int, last: int) -> None:
    """Add users number `first` to `last`; with them, `last` is the size of the directory."""
    installation = deployment.installation
    async with installation.opened() as engine:
        if first:  # those of before have no attribute or tag of the larger directory
            await engine.write(Unit("", tuple(_mark(installation, range(first), last))))
        for start in range(first, last, AT_A_TIME):
            numbers = range(start, min(start + AT_A_TIME, last))
            users = ADD.many([_user(installation, n, last) for n in numbers])
            halves = [_tag(installation, n, "half") for n in numbers if n % 2 == 0]
            marked = [_tag(installation, n, _name(last)) for n in numbers if _is_marked(n, last)]
            await engine.write(Unit("", (users, TAG.many(halves), TAG.many(marked))))
        if deployment.name == "PostgreSQL":  # as autovacuum does after a while
            await engine.write(Unit("", (ANALYZE.step(),)))


def _mark(installation: Installation, numbers: range, size: int) -> Iterator[Step]:
    marked = [n for n in numbers if _is_marked(n, size)]
    yield TAG.many([_tag(installation, n, _name(size)) for n in marked])
    values = [
        {"app_id": installation.app_id, "id": _id_of(n), "attributes": _attributes(n, size)}
        for n in marked
    ]
    yield MARK.many([MARK.bind(**each) for each in values])


def _user(installation: Installation, number: int, size: int) -> Values:
    return ADD.bind(
        app_id=installation.app_id,
        id=_id_of(number),
        language="en" if number % 2 else "de",
        attributes=_attributes(number, size),
        now=START_MS + number,
    )


def _attributes(number: int, size: int) -> str:
    given: dict[str, object] = {"plan": "free" if number % 2 else "pro"}
    if _is_marked(number, size):
        given[_name(size)] = number
    return json.dumps(given, separators=(",", ":"))


def _tag(installation: Installation, number: int, tag: str) -> Values:
    return TAG.bind(app_id=installation.app_id, tag=tag, user_id=_id_of(number))


def _is_marked(number: int, size: int) -> bool:
    return number % (size // MATCHES) == 0


def _name(size: int) -> str:
    return f"of-{size}"


def _id_of(number: int) -> str:
    return f"user-{number:07}"
