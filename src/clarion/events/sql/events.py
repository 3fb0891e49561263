"""Events in SQL. An event is accepted in one commit with the work that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from clarion.catalog.model import Priority
from clarion.events.model import Audience, Content, Event, EventStatus
from clarion.events.sql.jobs import ADD_JOB, DEAD_LANE, bind_job
from clarion.idempotency import sql as idempotency
from clarion.pages import Page
from clarion.store.keyed import keys_of
from clarion.store.statement import Row, Unit, statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clarion.events.model import Job
    from clarion.idempotency.model import IdempotencyClaim, StoredResponse
    from clarion.store.engine import Engine
    from clarion.store.statement import Value

_COLUMNS = """app_id, id, type, audience, content, priority, dedupe_key, status, retry_count,
last_error, remaining, notification_count, scheduled_at, expires_at, created_at, updated_at"""
# Of a large audience no more are looked at at once; the others see it when their time comes.
_LOOKED_AT = 1_000
_NEWEST = "\uffff"

ADD = statement(
    "add_event",
    f"""INSERT INTO events ({_COLUMNS}) VALUES (:app_id, :id, :type, :audience, :content,
    :priority, :dedupe_key, :status, 0, NULL, :remaining, 0, :scheduled_at, :expires_at,
    :created_at, :created_at)""",
)
GET = statement("get_event", f"SELECT {_COLUMNS} FROM events WHERE app_id = :app_id AND id = :id")
SELECT_MANY = statement(
    "select_events",
    f"""SELECT {_COLUMNS} FROM events
    WHERE app_id = :app_id AND id IN (SELECT key FROM json_each(:ids))""",
)
LIST = statement(
    "list_events",
    f"""SELECT {_COLUMNS} FROM events WHERE app_id = :app_id AND id < :before
    ORDER BY id DESC LIMIT :limit""",
)
# The states are written out, so that PostgreSQL sees that the partial index holds them all.
LIST_BY_STATUS = statement(
    "list_events_by_status",
    f"""SELECT {_COLUMNS} FROM events WHERE app_id = :app_id AND status = :status AND id < :before
    AND status IN ('scheduled', 'failed', 'cancelled', 'expired', 'rate_limited', 'deduplicated')
    ORDER BY id DESC LIMIT :limit""",
)
# What is decided can be called back as long as some of it waits.
CANCEL = statement(
    "cancel_event",
    f"""UPDATE events SET status = 'cancelled', updated_at = :now WHERE app_id = :app_id
    AND id = :id AND (status IN ('scheduled', 'pending', 'processing')
    OR (status = 'completed' AND EXISTS (SELECT 1 FROM (
      SELECT id FROM notifications WHERE app_id = :app_id AND event_id = :id
      ORDER BY id LIMIT {_LOOKED_AT}) AS n
    JOIN deliveries d ON d.notification_id = n.id AND d.status IN ('held', 'collected'))))
    RETURNING id""",
)
WAKE_HELD = statement(
    "wake_held_of_event",
    f"""UPDATE jobs SET due_at = :now WHERE due_at > :now AND lane > {DEAD_LANE} AND id IN (
      SELECT id || '/held' FROM notifications WHERE app_id = :app_id AND event_id = :id
      ORDER BY id LIMIT {_LOOKED_AT})""",
)
# What was decided is delivered again; what was not is decided.
REVIVE = statement(
    "revive_event",
    """UPDATE events SET status = CASE remaining WHEN 0 THEN 'completed' ELSE 'processing' END,
    retry_count = 0, updated_at = :now
    WHERE app_id = :app_id AND id = :id AND status = 'failed' RETURNING id""",
)
REVIVE_JOBS = statement(
    "revive_jobs",
    f"""UPDATE jobs SET lane = :lane, due_at = :now, tries = 0
    WHERE event_id = :event_id AND lane = {DEAD_LANE}""",
)
_encode = msgspec.json.Encoder().encode
_decode_content = msgspec.json.Decoder(Content).decode
_decode_audience = msgspec.json.Decoder(Audience).decode


class SqlEvents:
    """The `Events` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def accept(
        self, events: Sequence[Event], jobs: Sequence[Job], once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store events with their work, all or none."""
        claim = (idempotency.claim(once),) if once else ()
        add = ADD.many([_bind(event) for event in events])
        work = ADD_JOB.many([bind_job(job) for job in jobs])
        done = await self._engine.write(Unit(events[0].id, (*claim, add, work)))
        if done is None and once is not None:
            return await idempotency.replay_if_claimed(self._engine, once)
        return None

    async def recall(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Return what the first request with this key was answered, or None."""
        return await idempotency.replay_if_claimed(self._engine, once)

    async def get(self, app_id: str, event_id: str) -> Event | None:
        """Return the event, or None."""
        rows = await self._engine.fetch(GET, app_id=app_id, id=event_id)
        return read_event(rows[0]) if rows else None

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, Event]:
        """Return those of the events that there are."""
        rows = await self._engine.fetch(SELECT_MANY, app_id=app_id, ids=keys_of(ids))
        return {row[1]: read_event(row) for row in rows}

    async def list(
        self, app_id: str, *, status: EventStatus | None, after: str | None, limit: int
    ) -> Page[Event]:
        """Return the events, newest first."""
        values: dict[str, Value] = {"app_id": app_id, "before": after or _NEWEST}
        values["limit"] = limit + 1
        if status is None:
            rows = await self._engine.fetch(LIST, **values)
        else:
            rows = await self._engine.fetch(LIST_BY_STATUS, **values, status=status.value)
        items = tuple(read_event(row) for row in rows[:limit])
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def cancel(self, app_id: str, event_id: str, now: int) -> bool:
        """Call an event back; False if it is over or there is none."""
        values = {"app_id": app_id, "id": event_id}
        steps = (CANCEL.guard(**values, now=now), WAKE_HELD.step(**values, now=now))
        return await self._engine.write(Unit(event_id, steps)) is not None

    async def replay(self, app_id: str, event_id: str, lane: Priority, now: int) -> bool:
        """Try what failed once more; False if nothing of it has."""
        revive = REVIVE.guard(app_id=app_id, id=event_id, now=now)
        jobs = REVIVE_JOBS.step(event_id=event_id, lane=lane.value, now=now)
        return await self._engine.write(Unit(event_id, (revive, jobs))) is not None


def _bind(event: Event) -> Row:
    return ADD.bind(
        app_id=event.app_id,
        id=event.id,
        type=event.type,
        audience=_encode(event.audience).decode(),
        content=_encode(event.content).decode(),
        priority=event.priority.value,
        dedupe_key=event.dedupe_key,
        status=event.status.value,
        remaining=event.remaining,
        scheduled_at=event.scheduled_at,
        expires_at=event.expires_at,
        created_at=event.created_at,
    )


def read_event(row: Row) -> Event:
    """Return the event that a row holds."""
    return Event(
        app_id=row[0],
        id=row[1],
        type=row[2],
        audience=_decode_audience(row[3]),
        content=_decode_content(row[4]),
        priority=Priority(row[5]),
        dedupe_key=row[6],
        status=EventStatus(row[7]),
        retry_count=row[8],
        last_error=row[9],
        remaining=row[10],
        notification_count=row[11],
        scheduled_at=row[12],
        expires_at=row[13],
        created_at=row[14],
        updated_at=row[15],
    )
