"""The state of the pipeline, read from the store itself: what became of every accepted event."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import apsw
import asyncpg

from clarion.history.sql.ended import read_decisions
from clarion.store.opening import sqlite_path
from tests.faults.pipeline_load import PlannedRequest

Fetch = Callable[[str], Awaitable[list[tuple[Any, ...]]]]
NAMED = 20


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Fetch]:
    """Open the database for reading, whether the server runs or not."""
    if path := sqlite_path(url):
        lite = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        lite.set_busy_timeout(5_000)

        async def fetch_lite(sql: str) -> list[tuple[Any, ...]]:
            return list(lite.execute(sql))

        yield fetch_lite
        lite.close()
        return
    connection = await asyncpg.connect(url)

    async def fetch(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(sql)]

    yield fetch
    await connection.close()


@dataclass(frozen=True, kw_only=True)
class State:
    """The contents of the store when no work is left."""

    events: dict[str, tuple[str, int, int]]  # id → status, remaining, notifications
    received: Counter[tuple[str, str]]  # user and text → how often it is in the inbox
    unread: dict[str, tuple[int, int]]  # user → as counted, as there are
    sequences: dict[str, tuple[int, int, int]]  # user → as stored, highest, different ones
    deliveries: Counter[tuple[str, str]]  # channel and status → how many
    jobs: int


async def read_state(fetch: Fetch) -> State:
    events = await fetch("SELECT id, status, remaining, notification_count FROM events")
    received = await fetch(
        "SELECT user_id, body, COUNT(*) FROM notifications GROUP BY user_id, body"
    )
    numbers = await fetch(
        """SELECT i.user_id, i.unread_count, i.sequence,
        SUM(CASE WHEN n.is_shown = 1 AND n.read_at IS NULL THEN 1 ELSE 0 END),
        MAX(n.sequence), COUNT(DISTINCT n.sequence) FROM inboxes i JOIN notifications n
        ON n.app_id = i.app_id AND n.user_id = i.user_id
        GROUP BY i.user_id, i.unread_count, i.sequence"""
    )
    deliveries = Counter[tuple[str, str]]()
    for (_, channel, status), number in (await count_deliveries(fetch)).items():
        deliveries[channel, status] += number
    return State(
        events={row[0]: row[1:] for row in events},
        received=Counter({(user, body): count for user, body, count in received}),
        unread={row[0]: (row[1], row[3]) for row in numbers},
        sequences={row[0]: (row[2], row[4], row[5]) for row in numbers},
        deliveries=deliveries,
        jobs=await count_jobs(fetch),
    )


async def count_jobs(fetch: Fetch) -> int:
    ((count,),) = await fetch("SELECT COUNT(*) FROM jobs")
    return int(count)


def find_faults(
    state: State, requests: Sequence[PlannedRequest], accepted: dict[str, list[str]]
) -> Iterator[str]:
    """Return everything that is not as it must be."""
    expected = Counter(each for request in requests for each in request.receipts)
    yield from _compare("lost", expected - state.received)
    yield from _compare("doubled", state.received - expected)
    ids = {event_id for some in accepted.values() for event_id in some}
    yield from _compare("accepted and not stored", Counter(ids - state.events.keys()))
    yield from _compare("stored and never answered", Counter(state.events.keys() - ids))
    for user_id, (counted, there) in state.unread.items():
        if counted != there:
            yield f"{user_id} has {there} unread, and {counted} are counted"
    for user_id, (stored, highest, different) in state.sequences.items():
        if not stored == highest == different:
            yield f"{user_id}: sequences {stored}, {highest}, {different}"
    yield from _check_totals(state, sum(expected.values()))


async def count_deliveries(fetch: Fetch) -> Counter[tuple[str, str, str]]:
    """Return how many deliveries there are by user, channel and status, rows or not."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for user_id, channel, status, number in await fetch(
        "SELECT user_id, channel, status, COUNT(*) FROM deliveries GROUP BY 1, 2, 3"
    ):
        counts[user_id, channel, status] += number
    for user_id, ended, number in await fetch(
        "SELECT user_id, ended_deliveries, COUNT(*) FROM notifications GROUP BY 1, 2"
    ):
        for each in read_decisions(ended or "[]"):
            counts[user_id, each.channel.value, each.status.value] += number
    return counts


def _compare(fault: str, what: Counter[Any]) -> Iterator[str]:
    for each in list(what)[:NAMED]:
        yield f"{fault}: {each}"


def _check_totals(state: State, expected: int) -> Iterator[str]:
    """Every event is completed and counts its notifications; every delivery has arrived."""
    states = Counter(status for status, _, _ in state.events.values())
    if states != Counter(completed=len(state.events)):
        yield f"events are {dict(states)}"
    if any(remaining for _, remaining, _ in state.events.values()):
        yield "events wait for users"
    if sum(count for _, _, count in state.events.values()) != expected:
        yield "events do not count their notifications correctly"
    if state.deliveries != Counter({(c, "delivered"): expected for c in ("in_app", "stub")}):
        yield f"deliveries are {dict(state.deliveries)}"
    if state.jobs:
        yield f"{state.jobs} jobs are left"
