"""The books of the pipeline, read from the store itself: what became of everything accepted."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import apsw
import asyncpg

from clarion.store.opening import sqlite_path
from tests.faults.pipeline_load import Demand

Fetch = Callable[[str], Awaitable[list[tuple[Any, ...]]]]
NAMED = 20


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Fetch]:
    """Open the database to look into it, beside the server or behind it."""
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
class Books:
    """What the store says at rest."""

    events: dict[str, tuple[str, int, int]]  # id → status, remaining, notifications
    told: Counter[tuple[str, str]]  # person and words → how often they are in the inbox
    unread: dict[str, tuple[int, int]]  # person → as counted, as there are
    sequences: dict[str, tuple[int, int, int]]  # person → as remembered, highest, different ones
    deliveries: Counter[tuple[str, str]]  # channel and status → how many
    jobs: int


async def read_books(fetch: Fetch) -> Books:
    events = await fetch("SELECT id, status, remaining, notification_count FROM events")
    told = await fetch("SELECT user_id, body, COUNT(*) FROM notifications GROUP BY user_id, body")
    numbers = await fetch(
        """SELECT i.user_id, i.unread_count, i.sequence,
        SUM(CASE WHEN n.is_shown = 1 AND n.read_at IS NULL THEN 1 ELSE 0 END),
        MAX(n.sequence), COUNT(DISTINCT n.sequence) FROM inboxes i JOIN notifications n
        ON n.app_id = i.app_id AND n.user_id = i.user_id
        GROUP BY i.user_id, i.unread_count, i.sequence"""
    )
    deliveries = await fetch(
        "SELECT channel, status, COUNT(*) FROM deliveries GROUP BY channel, status"
    )
    return Books(
        events={row[0]: row[1:] for row in events},
        told=Counter({(user, body): count for user, body, count in told}),
        unread={row[0]: (row[1], row[3]) for row in numbers},
        sequences={row[0]: (row[2], row[4], row[5]) for row in numbers},
        deliveries=Counter({(channel, status): count for channel, status, count in deliveries}),
        jobs=await count_jobs(fetch),
    )


async def count_jobs(fetch: Fetch) -> int:
    ((count,),) = await fetch("SELECT COUNT(*) FROM jobs")
    return int(count)


def find_faults(
    books: Books, demands: Sequence[Demand], accepted: dict[str, list[str]]
) -> Iterator[str]:
    """Say everything that is not as it must be."""
    expected = Counter(told for demand in demands for told in demand.told)
    yield from _compare("lost", expected - books.told)
    yield from _compare("doubled", books.told - expected)
    ids = {event_id for some in accepted.values() for event_id in some}
    yield from _compare("accepted and not stored", Counter(ids - books.events.keys()))
    yield from _compare("stored and never answered", Counter(books.events.keys() - ids))
    for user_id, (counted, there) in books.unread.items():
        if counted != there:
            yield f"{user_id} has {there} unread, and {counted} are counted"
    for user_id, (remembered, highest, different) in books.sequences.items():
        if not remembered == highest == different:
            yield f"{user_id}: sequences {remembered}, {highest}, {different}"
    yield from _balance(books, sum(expected.values()))


def _compare(word: str, what: Counter[Any]) -> Iterator[str]:
    for each in list(what)[:NAMED]:
        yield f"{word}: {each}"


def _balance(books: Books, expected: int) -> Iterator[str]:
    """The conservation ledger: accepted = settled + cancelled + dead + waiting, at rest."""
    states = Counter(status for status, _, _ in books.events.values())
    if states != Counter(completed=len(books.events)):
        yield f"events are {dict(states)}"
    if any(remaining for _, remaining, _ in books.events.values()):
        yield "events wait for people"
    if sum(count for _, _, count in books.events.values()) != expected:
        yield "events do not count their notifications right"
    if books.deliveries != Counter({(c, "delivered"): expected for c in ("in_app", "stub")}):
        yield f"deliveries are {dict(books.deliveries)}"
    if books.jobs:
        yield f"{books.jobs} jobs are left"
