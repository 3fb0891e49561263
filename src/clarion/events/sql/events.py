"""Events in SQL. An event is accepted in one commit with its first job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial

from clarion.access.sql import of_apps
from clarion.catalog.model import Priority
from clarion.events.model import INDEXED, Event, EventStatus, Job, JobOutcome
from clarion.events.sql import jobs as queue
from clarion.events.sql.outcomes import change_steps
from clarion.events.tables import DEAD_LANE, EVENTS
from clarion.history.sql.notifications import is_some_waiting, of_event
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pacing import Slices
from clarion.pages import READ_FOR_PAGE, Page, fill_page
from clarion.push.model import Message, StoragePolicy
from clarion.push.sql.topics import publish_steps
from clarion.store.engine import Engine
from clarion.store.statement import Row, Step, Unit, Value, keys_of, statement

_STATUS, _REMAINING, _COUNT, _UPDATED = map(
    EVENTS.names.index, ("status", "remaining", "notification_count", "updated_at")
)
# A cancellation checks and wakes no more notifications than this; the held jobs of the others find
# the event cancelled when they are due.
_CHECKED = 1_000
_NEWEST = "\uffff"
# Dead letters that are replayed in one commit.
_REPLAYED = 1_000

ADD = statement("add_event", f"INSERT INTO events ({EVENTS.columns}) VALUES ({EVENTS.parameters})")
GET = statement(
    "get_event", f"SELECT {EVENTS.columns} FROM events WHERE app_id = :app_id AND id = :id"
)
SELECT_MANY = statement(
    "select_events",
    f"""SELECT {EVENTS.columns} FROM events
    WHERE app_id = :app_id AND id IN (SELECT key FROM json_each(:ids))""",
)
FIND_DEAD = statement(
    "find_dead_letters",
    f"""SELECT id, event_id FROM jobs WHERE id IN (SELECT key FROM json_each(:ids))
    AND app_id = :app_id AND lane = {DEAD_LANE}""",
)
SELECT_TRACES = statement(
    "select_traces_of_events",
    """SELECT id, trace FROM events WHERE app_id = :app_id AND trace IS NOT NULL
    AND id IN (SELECT key FROM json_each(:ids))""",
)
SELECT_CANCELLED = statement(
    "select_cancelled_events",
    """SELECT id FROM events WHERE app_id = :app_id AND status = 'cancelled'
    AND id IN (SELECT key FROM json_each(:ids))""",
)
LIST = statement(
    "list_events",
    f"""SELECT {EVENTS.columns} FROM events WHERE app_id = :app_id AND id < :before
    ORDER BY id DESC LIMIT :limit""",
)
# The statuses are written out, so that PostgreSQL sees that the partial index holds them all.
LIST_BY_STATUS = statement(
    "list_events_by_status",
    f"""SELECT {EVENTS.columns} FROM events
    WHERE app_id = :app_id AND status = :status AND id < :before
    AND status IN ('scheduled', 'failed', 'cancelled', 'expired', 'rate_limited', 'deduplicated')
    ORDER BY id DESC LIMIT :limit""",
)
# A completed event can be cancelled as long as some of its deliveries are held or collected.
CANCEL = statement(
    "cancel_event",
    f"""UPDATE events SET status = 'cancelled', updated_at = :now WHERE app_id = :app_id
    AND id = :id AND (status IN ('scheduled', 'pending', 'processing')
    OR (status = 'completed' AND {is_some_waiting(_CHECKED)}))
    RETURNING id""",
)
WAKE_HELD = statement(
    "wake_held_of_event",
    f"""UPDATE jobs SET due_at = :now WHERE due_at > :now AND lane > {DEAD_LANE} AND id IN (
      {of_event("id || '/held'", _CHECKED)})""",
)
REPLAY = statement(
    "replay_event",
    """UPDATE events SET status = CASE remaining WHEN 0 THEN 'completed' ELSE 'processing' END,
    retry_count = 0, updated_at = :now
    WHERE app_id = :app_id AND id = :id AND status = 'failed' RETURNING id""",
)
# While its dead letters are replayed in several commits, an event is still failed.
KEEP_FAILED = statement(
    "keep_failed_event",
    """UPDATE events SET updated_at = :now
    WHERE app_id = :app_id AND id = :id AND status = 'failed' RETURNING id""",
)
# Of the first ones some may have become dead letters again meanwhile.
FAIL_AGAIN = statement(
    "fail_event_again",
    f"""UPDATE events SET status = 'failed' WHERE app_id = :app_id AND id = :id
    AND EXISTS (SELECT 1 FROM jobs
    WHERE event_id = :id AND app_id = :app_id AND lane = {DEAD_LANE})""",
)
REPLAY_JOBS = statement(
    "replay_jobs",
    f"""UPDATE jobs SET lane = :lane, due_at = :now, tries = 0
    WHERE id IN (SELECT key FROM json_each(:ids)) AND lane = {DEAD_LANE}""",
)
SELECT_DEAD = statement(
    "select_dead_letters",
    f"""SELECT id FROM jobs WHERE event_id = :event_id AND app_id = :app_id
    AND lane = {DEAD_LANE} LIMIT :limit""",
)
FIND_DEAD_RANGE = statement(
    "find_range_of_dead_letters",
    f"""SELECT MIN(id), MAX(id) FROM jobs WHERE event_id = :event_id AND app_id = :app_id
    AND lane = {DEAD_LANE}""",
)
# There is no index that has the dead letters of an event in an order. Those of a large audience are
# next to each other among all jobs.
SELECT_JOBS_BETWEEN = statement(
    "select_jobs_between",
    """SELECT id, event_id FROM jobs WHERE id > :after AND id <= :last ORDER BY id
    LIMIT :limit""",
)
COUNT_NEW = statement(
    "count_new_events",
    f"""SELECT events.app_id, events.type, COUNT(*) FROM {of_apps("events")}
    AND events.id >= :first_id AND events.id < :last_id
    GROUP BY events.app_id, events.type""",
)


class SqlEvents:
    """The `Events` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def accept(
        self, events: Sequence[Event], jobs: Sequence[Job], once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        rows: list[Row] = []
        slices = Slices()
        for event in events:
            rows.append(EVENTS.bind(event))
            await slices.pause()
        add = ADD.many(rows)
        steps, first = (add, queue.add(jobs)), events[0]
        done = await idempotency.write_once(
            self._engine, first.id, once, *steps, owner=first.app_id
        )
        return done if isinstance(done, StoredResponse) else None

    async def accept_decided(
        self, event: Event, outcome: JobOutcome, once: IdempotencyClaim | None, now: int
    ) -> StoredResponse | bool:
        claim = (idempotency.claim(once),) if once else ()
        steps = (*claim, *change_steps(outcome, now), _add_decided(event, outcome, now))
        # By the user, as every outcome.
        done = await self._engine.write(Unit(outcome.job.user_id, steps, event.app_id))
        if done is None and once is not None:
            return await self.find_response(once) or False
        return done is not None

    async def publish(
        self, event: Event, job: Job, message: Message, once: IdempotencyClaim | None = None
    ) -> StoredResponse | int | None:
        written = publish_steps(message, StoragePolicy.ALL)
        steps = (*written, ADD.many((EVENTS.bind(event),)), queue.add((job,)))
        # By its topic, as every unit that takes the lock of one.
        done = await idempotency.write_once(
            self._engine, message.topic or "", once, *steps, owner=event.app_id
        )
        if done is None or isinstance(done, StoredResponse):
            return done
        return int(done[1][0][0])

    async def find_response(self, once: IdempotencyClaim) -> StoredResponse | None:
        return await idempotency.replay_if_claimed(self._engine, once)

    async def get(self, app_id: str, event_id: str) -> Event | None:
        rows = await self._engine.fetch(GET, app_id=app_id, id=event_id)
        return EVENTS.read(rows[0]) if rows else None

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, Event]:
        rows = await self._engine.fetch(SELECT_MANY, app_id=app_id, ids=keys_of(ids))
        return {event.id: event for event in map(EVENTS.read, rows)}

    async def find_traces(self, app_id: str, ids: Iterable[str]) -> dict[str, str]:
        rows = await self._engine.fetch(SELECT_TRACES, app_id=app_id, ids=keys_of(ids))
        return dict(rows)

    async def find_cancelled(self, app_id: str, ids: Iterable[str]) -> set[str]:
        rows = await self._engine.fetch(SELECT_CANCELLED, app_id=app_id, ids=keys_of(ids))
        return {row[0] for row in rows}

    async def find_dead(self, app_id: str, job_ids: Iterable[str]) -> dict[str, str]:
        rows = await self._engine.fetch(FIND_DEAD, app_id=app_id, ids=keys_of(job_ids))
        return dict(rows)

    async def list(
        self, app_id: str, *, status: EventStatus | None, after: str | None, limit: int
    ) -> Page[Event]:
        values: dict[str, Value] = {"app_id": app_id, "before": after or _NEWEST}
        is_indexed = status is None or status in INDEXED
        read = limit if is_indexed else READ_FOR_PAGE
        values["limit"] = read + 1
        if status is not None and is_indexed:
            rows = await self._engine.fetch(LIST_BY_STATUS, **values, status=status.value)
        else:
            rows = await self._engine.fetch(LIST, **values)

        def item_of(event: Event) -> Event | None:
            return event if status in (None, event.status) else None

        events = [EVENTS.read(row) for row in rows]
        return fill_page(
            events, read=read, limit=limit, item_of=item_of, place_of=lambda event: event.id
        )

    async def cancel(self, app_id: str, event_id: str, now: int) -> bool:
        values = {"app_id": app_id, "id": event_id}
        steps = (CANCEL.guard(**values, now=now), WAKE_HELD.step(**values, now=now))
        return await self._engine.write(Unit(event_id, steps, app_id)) is not None

    async def replay(self, app_id: str, event_id: str, lane: Priority, now: int) -> bool:
        event = {"app_id": app_id, "id": event_id}
        found = {"app_id": app_id, "event_id": event_id}
        revive = partial(REPLAY_JOBS.step, lane=lane.value, now=now)
        dead = await self._engine.fetch(SELECT_DEAD, **found, limit=_REPLAYED + 1)
        if len(dead) > _REPLAYED:
            dead = ()
            async for ids in self._each_dead(**found):
                steps = (KEEP_FAILED.guard(**event, now=now), revive(ids=keys_of(ids)))
                if await self._engine.write(Unit(event_id, steps, app_id)) is None:
                    return False
        last = (revive(ids=keys_of(id_ for (id_,) in dead)), FAIL_AGAIN.step(**event))
        unit = Unit(event_id, (REPLAY.guard(**event, now=now), *last), app_id)
        return await self._engine.write(unit) is not None

    async def _each_dead(self, app_id: str, event_id: str) -> AsyncIterator[Sequence[str]]:
        """Yield the ids of the dead letters of an event, each once, some at a time."""
        rows = await self._engine.fetch_slowly(FIND_DEAD_RANGE, app_id=app_id, event_id=event_id)
        first, last = rows[0]
        after = first[:-1] if first is not None else None
        while after is not None:
            rows = await self._engine.fetch(
                SELECT_JOBS_BETWEEN, after=after, last=last, limit=_REPLAYED
            )
            if ids := [id_ for id_, of_event in rows if of_event == event_id]:
                yield ids
            after = rows[-1][0] if len(rows) == _REPLAYED else None


def _add_decided(event: Event, outcome: JobOutcome, now: int) -> Step:
    row = list(EVENTS.bind(event))
    row[_STATUS] = (outcome.final_status or event.status).value
    row[_REMAINING], row[_COUNT], row[_UPDATED] = 0, 1, now
    return ADD.many((tuple(row),))
