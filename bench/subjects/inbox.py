"""The inbox of one user, small and very large: a page of it, and the unread count.

With `BENCH_INBOX_SIZES=10000,1000000,10000000` also one of ten million, which takes long to fill.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from time import perf_counter, process_time

from bench.deployment import HOST, Deployment, on_postgres, on_sqlite
from bench.installation import Installation, user_of
from bench.load import Request
from bench.subjects.writes import EMPTY
from bench.table import Row
from clarion.clock import first_id_of
from clarion.inbox.sql.inboxes import SELECT_STATE
from clarion.inbox.sql.pages import ITEMS
from clarion.store.statement import Statement, Unit, Value, statement

SIZES = [int(each) for each in os.environ.get("BENCH_INBOX_SIZES", "10000,1000000").split(",")]
IN_FLIGHT = (64, 512)
AT_A_TIME = 5_000
# An eighth is unread, all over the inbox.
UNREAD_EVERY = 8
# As large as those of the events that `events.py` sends.
CONTENT = """{"data":{"snippet":"What a harbour!"},"actor":{"id":"actor-7","name":"Ana"},"target":
{"id":"post-7","type":"post"},"channels":null,"deeplink":null,"image_url":null,"collapse_key":null,
"published_to":null}""".replace("\n", "")
START_MS = 1_700_000_000_000
ADD = statement(
    "add_bench_notification",
    """INSERT INTO notifications (app_id, user_id, id, event_id, type, category, priority, title,
    body, content, count, is_shown, sequence, read_at, created_at)
    VALUES (:app_id, :user_id, :id, :id, 'POST_COMMENT', 'social', 1, 'New comment',
    'Ana commented on your post', :content, 1, 1, :sequence, :read_at, :created_at)""",
)
COUNT = statement(
    "set_bench_inbox",
    """INSERT INTO inboxes (app_id, user_id, unread_count, sequence)
    VALUES (:app_id, :user_id, :unread, :sequence) ON CONFLICT (app_id, user_id) DO UPDATE SET
    unread_count = excluded.unread_count, sequence = excluded.sequence""",
)


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    with on_sqlite(users=1) as deployment:
        yield from _measure(deployment, seconds)
    with on_postgres(users=1) as deployment:
        yield from _measure(deployment, seconds)


def _measure(deployment: Deployment, seconds: float) -> Iterator[Row]:
    empty = {each: measure_empty(deployment, seconds, each) for each in IN_FLIGHT}
    yield from empty.values()
    first: dict[tuple[str, int], Row] = {}
    filled = 0
    for stored in SIZES:
        asyncio.run(_fill(deployment.installation, filled, stored))
        filled = stored
        for what, statement_, values in _reads(deployment.installation):
            name = f"bare SELECT of a {what}, {stored:,} stored, {deployment.name}"
            yield asyncio.run(_select(deployment.installation, name, statement_, values, seconds))
        for in_flight in IN_FLIGHT:
            for what, path, known in _paths(deployment):
                request = _ask(deployment, path, known)
                name = f"{what}, {stored:,} stored, {in_flight} in flight, {deployment.name}"
                result, cpu_s = deployment.measure(request, seconds, in_flight=in_flight)
                row = Row.of(name, result, empty[in_flight], cpu_s=cpu_s)
                before = first.setdefault((what, in_flight), row)
                yield row if before is row else _compare(row, before)


def measure_empty(deployment: Deployment, seconds: float, in_flight: int) -> Row:
    """Measure the empty handler with so many requests at a time."""
    result, cpu_s = deployment.measure_baseline(EMPTY, seconds, in_flight=in_flight)
    return Row.of(f"empty handler, {in_flight} in flight, {deployment.name}", result, cpu_s=cpu_s)


def _compare(row: Row, before: Row) -> Row:
    """Return a row with its CPU time over that of the smallest inbox."""
    if not row.cpu_s or not before.cpu_s:
        return row
    note = f"CPU {row.cpu_s / before.cpu_s:.2f}× that of {SIZES[0]:,} stored"
    return replace(row, note=", ".join(filter(None, [note, row.note])))


def _reads(installation: Installation) -> Iterator[tuple[str, Statement, dict[str, Value]]]:
    """Return the statements that the server runs for a page and for the count."""
    owner: dict[str, Value] = {"app_id": installation.app_id, "user_id": user_of(0)}
    page = {**owner, "before_id": "g", "limit": 21}
    yield "page of 20", ITEMS[False, False], page
    yield "page of 20 unread", ITEMS[True, False], page
    yield "count", SELECT_STATE, owner


async def _select(
    installation: Installation,
    name: str,
    read: Statement,
    values: dict[str, Value],
    seconds: float,
) -> Row:
    """Run a statement over and over on one connection, in this process."""
    async with installation.opened() as engine:
        await engine.fetch(read, **values)
        began, cpu_s, count = perf_counter(), process_time(), 0
        while perf_counter() < began + seconds:
            await engine.fetch(read, **values)
            count += 1
        took, used = perf_counter() - began, process_time() - cpu_s
    return Row(what=name, throughput=count / took, cpu_s=used / count, note="one at a time")


def _paths(deployment: Deployment) -> Iterator[tuple[str, str, str | None]]:
    """Yield what is asked for, its path, and the tag of the response that the client has."""
    of_user = f"/v1/users/{user_of(0)}"
    yield "page of 20", f"{of_user}/notifications", None
    yield "page of 20 unread", f"{of_user}/notifications?unread=true", None
    yield "page of 20, not modified", f"{of_user}/notifications", _tag_of(deployment, of_user)
    yield "unread count", f"{of_user}/unread-count", None


def _tag_of(deployment: Deployment, of_user: str) -> str:
    connection = HTTPConnection(HOST, deployment.port)
    headers = dict(deployment.installation.api_headers())
    connection.request("GET", f"{of_user}/notifications", headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.headers["etag"]


def _ask(deployment: Deployment, path: str, known: str | None) -> Request:
    headers = deployment.installation.api_headers()
    if known is not None:
        headers = (*headers, ("if-none-match", known))
    return Request(method="GET", path=path, headers=headers, body=b"")


async def _fill(installation: Installation, first: int, last: int) -> None:
    """Insert notifications number `first` to `last`."""
    owner = {"app_id": installation.app_id, "user_id": user_of(0)}
    async with installation.opened() as engine:
        for start in range(first, last, AT_A_TIME):
            numbers = range(start, min(start + AT_A_TIME, last))
            rows = [
                ADD.bind(
                    **owner,
                    id=_id_of(n),
                    content=CONTENT,
                    sequence=n + 1,
                    read_at=None if n % UNREAD_EVERY == 0 else START_MS + n,
                    created_at=START_MS + n,
                )
                for n in numbers
            ]
            await engine.write(Unit("", (ADD.many(rows),)))
        unread = -(-last // UNREAD_EVERY)
        await engine.write(Unit("", (COUNT.step(**owner, unread=unread, sequence=last),)))


def _id_of(number: int) -> str:
    return f"{first_id_of(START_MS + number)}-7000-8000-000000000000"
