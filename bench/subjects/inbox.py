"""The inbox of one user, small and very large: a page of it, and the unread count."""

import asyncio
from collections.abc import Iterator

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.installation import Installation, user_of
from bench.load import Request
from bench.table import Row
from clarion.events.sql.retention import first_id_of
from clarion.store.statement import Unit, statement

SMALL = 10_000
LARGE = 1_000_000
AT_A_TIME = 5_000
# An eighth is unread, all over the inbox.
UNREAD_EVERY = 8
START_MS = 1_700_000_000_000
ADD = statement(
    "add_bench_notification",
    """INSERT INTO notifications (app_id, user_id, id, event_id, type, category, priority, title,
    body, content, count, is_shown, sequence, read_at, created_at)
    VALUES (:app_id, :user_id, :id, :id, 'POST_COMMENT', 'social', 1, 'New comment',
    'Ana commented on your post', '{}', 1, 1, :sequence, :read_at, :created_at)""",
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
    asyncio.run(_fill(deployment.installation, 0, SMALL))
    small = [_look(deployment, seconds, what, path, SMALL, None) for what, path in _paths()]
    yield from small
    asyncio.run(_fill(deployment.installation, SMALL, LARGE))
    for (what, path), before in zip(_paths(), small, strict=True):
        yield _look(deployment, seconds, what, path, LARGE, before)


def _paths() -> tuple[tuple[str, str], ...]:
    of_user = f"/v1/users/{user_of(0)}"
    return (
        ("page of 20", f"{of_user}/notifications"),
        ("page of 20 unread", f"{of_user}/notifications?unread=true"),
        ("unread count", f"{of_user}/unread-count"),
    )


def _look(
    deployment: Deployment, seconds: float, what: str, path: str, stored: int, before: Row | None
) -> Row:
    request = Request(
        method="GET", path=path, headers=deployment.installation.api_headers(), body=b""
    )
    result, cpu_s = deployment.measure(request, seconds)
    name = f"{what}, {stored:,} stored, {deployment.name}"
    note = ""
    if before is not None and before.cpu_s:
        note = f"CPU {cpu_s / before.cpu_s:.2f}× that of the small inbox"
    return Row.of(name, result, before, cpu_s=cpu_s, note=note)


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
