"""The queue in SQL. A claim is a lease with a fencing token; an expired lease makes the job due."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial

from clarion.catalog.model import Channel, Priority
from clarion.events.model import NEVER, TOKEN_STEP, DeadLetter, DueJobs, Job, JobCount, Reschedule
from clarion.events.tables import DEAD_LANE, JOBS
from clarion.history.sql.deliveries import JOIN_WAITING
from clarion.store.engine import Engine
from clarion.store.statement import Statement, Step, Unit, Value, keys_of, statement

ERROR_LENGTH = 500
# Apps whose claims are released in one commit.
_RELEASED = 500
# No job is due later.
_LAST = (1 << 63) - 1
_INSERT = f"INSERT INTO jobs ({JOBS.columns}) VALUES ({JOBS.parameters})"

ADD_JOB = statement("add_job", _INSERT)
# Everything held for a notification, or collected for a digest, shares one job, due when the first
# part is. The upsert locks its row, so it waits for a worker that ends the job at this moment. The
# next part revives a dead letter: otherwise all later parts would wait for it.
ADD_OR_HASTEN_JOB = statement(
    "add_or_hasten_job",
    f"""{_INSERT} ON CONFLICT (id) DO UPDATE SET due_at =
    CASE WHEN excluded.due_at < jobs.due_at OR jobs.lane = {DEAD_LANE}
    THEN excluded.due_at ELSE jobs.due_at END,
    lane = CASE WHEN jobs.lane = {DEAD_LANE} THEN excluded.lane ELSE jobs.lane END,
    tries = CASE WHEN jobs.lane = {DEAD_LANE} THEN 0 ELSE jobs.tries END""",
)
# A job that another node claims at this moment is left to it: no claim waits for another one. The
# jobs are chosen first: PostgreSQL may run a query inside the condition several times, and find
# others each time.
CLAIM = statement(
    "claim_jobs",
    f"""WITH due AS MATERIALIZED (
      SELECT id FROM jobs WHERE pool = :pool AND lane = :lane AND app_id = :app_id
      AND due_at <= :now ORDER BY due_at LIMIT :limit /*postgres FOR UPDATE SKIP LOCKED */)
    UPDATE jobs SET due_at = :until, token = token + 1, node_id = :node_id
    WHERE lane = :lane AND due_at <= :now AND id IN (SELECT id FROM due)
    RETURNING {JOBS.columns}""",
)
RENEW = statement(
    "renew_claim",
    "UPDATE jobs SET due_at = :until WHERE id = :id AND token = :token RETURNING id",
)
_PROGRESS = f"token = (token / {TOKEN_STEP} + 1) * {TOKEN_STEP}"
END = statement("end_job", "DELETE FROM jobs WHERE id = :id AND token = :token RETURNING id")
RESCHEDULE = statement(
    "reschedule_job",
    f"""UPDATE jobs SET due_at = :due_at, subject = :subject, {_PROGRESS}
    WHERE id = :id AND token = :token RETURNING id""",
)
RETRY = statement(
    "retry_job",
    f"""UPDATE jobs SET due_at = :due_at, tries = tries + 1, {_PROGRESS}
    WHERE id = :id AND token = :token RETURNING id""",
)
MAKE_DEAD = statement(
    "make_dead_letter",
    f"""UPDATE jobs SET lane = {DEAD_LANE}, tries = tries + 1, {_PROGRESS}
    WHERE id = :id AND token = :token RETURNING id""",
)
SET_ERROR = statement(
    "set_event_error",
    """UPDATE events SET retry_count = :tries, last_error = :error, updated_at = :now,
    status = CASE CAST(:is_dead AS INTEGER) WHEN 1 THEN 'failed' ELSE status END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled'""",
)
# The token as well: a worker that decides at this moment has read the preferences from before.
WAKE_USER = statement(
    "wake_jobs_of_user",
    f"""UPDATE jobs SET due_at = :now, {_PROGRESS} WHERE app_id = :app_id AND user_id = :user_id
    AND kind IN ('held', 'digest') AND due_at > :now AND lane >= 0""",
)
# The next try does not count: a change of a provider must not shorten the schedule.
HASTEN = statement(
    "hasten_deliveries",
    f"""UPDATE jobs SET due_at = :due_at, tries = CASE WHEN tries > 0 THEN tries - 1 ELSE 0 END
    WHERE app_id = :app_id AND due_at > :due_at AND token % {TOKEN_STEP} = 0 AND id IN (
      SELECT id FROM jobs WHERE pool = :pool AND lane = :lane AND app_id = :app_id
      AND due_at > :due_at AND token % {TOKEN_STEP} = 0 ORDER BY due_at LIMIT :limit)
    RETURNING id""",
)
RELEASE_CLAIMS = statement(
    "release_claimed_jobs",
    f"""UPDATE jobs SET due_at = :now WHERE pool = :pool AND lane = :lane AND app_id = :app_id
    AND due_at > :now AND due_at < :until AND token % {TOKEN_STEP} > 0 AND node_id = :node_id""",
)
# They count as claims without progress: what was sent may be sent again each time, if its outcome
# cannot be stored for long, and that must end.
RELEASE_LOST = statement(
    "release_lost_jobs",
    f"""UPDATE jobs SET due_at = :now
    WHERE pool = :pool AND lane = :lane AND app_id = :app_id
    AND due_at > :now AND due_at < :until AND token % {TOKEN_STEP} > 0 AND node_id = :node_id
    AND id NOT IN (SELECT key FROM json_each(:ids))""",
)
# A chunk of all jobs by their ids: so none is moved twice.
SELECT_CHUNK = statement(
    "select_chunk_of_jobs",
    "SELECT id FROM jobs WHERE id > :after ORDER BY id LIMIT :limit",
)
_MOVE = """UPDATE jobs SET due_at = due_at + :by_ms
WHERE id IN (SELECT key FROM json_each(:ids)) AND lane >= 0"""
MOVE_DUE = statement("move_due_jobs", f"{_MOVE} AND due_at <= :now")
MOVE_WAITING = statement(
    "move_waiting_jobs",
    f"""{_MOVE} AND due_at > :now AND due_at < {NEVER} AND (tries > 0 OR token % {TOKEN_STEP} > 0
    OR (:by_ms < 0 AND token > 0 AND kind IN ('expand', 'decide', 'deliver')))""",
)
# Walks the index from app to app: each step finds the first job after all those of a pool, lane and
# app, however many these are. SQLite passes over what equals the values, so that the last time of
# all is one of them; and it compares with columns by the first one alone, with expressions by all.
SELECT_OLDEST = statement(
    "select_oldest_jobs",
    f"""WITH RECURSIVE oldest (id, number) AS (
      SELECT (SELECT id FROM jobs
        WHERE (pool, lane, app_id, due_at) > (:pool, :lane, :app_id, {_LAST})
        ORDER BY pool, lane, app_id, due_at LIMIT 1), 1
      UNION ALL
      SELECT (SELECT n.id FROM jobs n
        WHERE (n.pool, n.lane, n.app_id, n.due_at)
        > (j.pool || '', j.lane + 0, j.app_id || '', {_LAST})
        ORDER BY n.pool, n.lane, n.app_id, n.due_at LIMIT 1), o.number + 1
      FROM oldest o JOIN jobs j ON j.id = o.id WHERE o.number < :limit)
    SELECT j.pool, j.lane, j.app_id, j.due_at FROM oldest o JOIN jobs j ON j.id = o.id
    ORDER BY o.number""",
)
COUNT_DUE = statement(
    "count_due_jobs",
    """SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE pool = :pool AND lane = :lane
    AND app_id = :app_id AND due_at <= :now ORDER BY due_at LIMIT :limit) AS due""",
)
COUNT = statement(
    "count_jobs",
    """SELECT app_id, lane, COUNT(*), COUNT(*) FILTER (WHERE due_at > :now) FROM jobs
    GROUP BY app_id, lane""",
)
# Counted up to a limit. Held and collected ones of a user are few, and in an index of their own.
STUCK_LIMIT = 100_000
COUNT_STUCK = statement(
    "count_deliveries_behind_dead_letters",
    f"""SELECT COUNT(*) FROM (SELECT 1 FROM jobs j {JOIN_WAITING}
    WHERE j.pool = '' AND j.lane = {DEAD_LANE} AND j.kind IN ('held', 'digest')
    LIMIT {STUCK_LIMIT}) AS stuck""",
)
# The audience itself counts as one recipient until all its users are found, so that the event is
# not completed before.
COUNT_RECIPIENTS = statement(
    "count_recipients",
    """UPDATE events SET remaining = remaining + :found - :end, updated_at = :now,
    status = CASE WHEN status = 'failed' THEN status
    WHEN remaining + :found - :end = 0 THEN 'completed' ELSE 'processing' END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled' RETURNING id""",
)


class SqlQueue:
    """The `Queue` port."""

    def __init__(self, engine: Engine, node_id: str = "") -> None:
        self._engine = engine
        self._node_id = node_id

    async def claim(
        self, pool: str, app_id: str, quotas: Mapping[Priority, int], *, now: int, until: int
    ) -> tuple[Job, ...]:
        values: dict[str, Value] = {"pool": pool, "app_id": app_id, "now": now, "until": until}
        values["node_id"] = self._node_id
        steps = tuple(
            CLAIM.step(**values, lane=lane.value, limit=quota) for lane, quota in quotas.items()
        )
        done = await self._engine.write_apart(Unit("", steps, app_id)) or ()
        return tuple(JOBS.read(row) for rows in done for row in rows)

    async def renew(self, jobs: Sequence[Job], until: int) -> set[str]:
        rows = [RENEW.bind(id=job.id, token=job.token, until=until) for job in jobs]
        done = await self._engine.write_apart(Unit("", (RENEW.many(rows),))) if rows else None
        return {id_ for (id_,) in done[0]} if done else set()

    async def expand(self, job: Job, found: Sequence[Job], cursor: str | None, now: int) -> bool:
        is_end = cursor is None
        step = end(job) if cursor is None else reschedule(job, now, cursor)
        count = COUNT_RECIPIENTS.guard(
            app_id=job.app_id, event_id=job.event_id, found=len(found), end=int(is_end), now=now
        )
        steps = (step, count, add(found)) if found else (step, count)
        return await self._engine.write(Unit(job.event_id, steps, job.app_id)) is not None

    async def wake_user(self, app_id: str, user_id: str, now: int) -> None:
        step = WAKE_USER.step(app_id=app_id, user_id=user_id, now=now)
        await self._engine.write(Unit(user_id, (step,), app_id))

    async def hasten(
        self, channel: Channel, lane: Priority, app_id: str, due_at: int, limit: int
    ) -> int:
        step = HASTEN.step(
            pool=channel.value, lane=lane.value, app_id=app_id, due_at=due_at, limit=limit
        )
        done = await self._engine.write(Unit(app_id, (step,), app_id))
        return len(done[0]) if done else 0

    async def release_claims(self, node_id: str, *, now: int, until: int) -> None:
        bind = partial(RELEASE_CLAIMS.bind, node_id=node_id, now=now, until=until)
        async for page in self._each_lane():
            rows = [bind(pool=each.pool, lane=each.lane, app_id=each.app_id) for each in page]
            await self._engine.write_apart(Unit("", (RELEASE_CLAIMS.many(rows),)))

    async def release_lost(
        self, held: Mapping[str, Collection[str]], *, now: int, until: int
    ) -> None:
        bind = partial(RELEASE_LOST.bind, node_id=self._node_id, now=now, until=until)
        keys = {app_id: keys_of(ids) for app_id, ids in held.items()}
        nothing = keys_of(())
        async for page in self._each_lane():
            rows = [
                bind(
                    pool=each.pool,
                    lane=each.lane,
                    app_id=each.app_id,
                    ids=keys.get(each.app_id, nothing),
                )
                for each in page
            ]
            await self._engine.write_apart(Unit("", (RELEASE_LOST.many(rows),)))

    async def move_due(self, after: str, *, now: int, by_ms: int, limit: int) -> str | None:
        return await self._move(MOVE_DUE, after, limit, now=now, by_ms=by_ms)

    async def move_waiting(self, after: str, *, now: int, by_ms: int, limit: int) -> str | None:
        return await self._move(MOVE_WAITING, after, limit, now=now, by_ms=by_ms)

    async def _move(self, move: Statement, after: str, limit: int, **values: int) -> str | None:
        rows = await self._engine.fetch(SELECT_CHUNK, after=after, limit=limit)
        if not rows:
            return None
        ids = keys_of(id_ for (id_,) in rows)
        await self._engine.write(Unit("", (move.step(ids=ids, **values),)))
        last: str = rows[-1][0]
        return last

    async def _each_lane(self) -> AsyncIterator[list[DueJobs]]:
        """Yield the pools, lanes and apps that have jobs, some at a time; not dead letters."""
        last = DueJobs("", DEAD_LANE, "", 0)
        while True:
            found = await self.find_oldest(after=last, limit=_RELEASED)
            if page := [each for each in found if each.lane != DEAD_LANE]:
                yield page
            if len(found) < _RELEASED:
                return
            last = found[-1]

    async def find_oldest(self, *, after: DueJobs, limit: int) -> tuple[DueJobs, ...]:
        rows = await self._engine.fetch(
            SELECT_OLDEST, pool=after.pool, lane=after.lane, app_id=after.app_id, limit=limit
        )
        return tuple(map(DueJobs._make, rows))

    async def count_due(self, pool: str, lane: Priority, app_id: str, now: int, limit: int) -> int:
        rows = await self._engine.fetch(
            COUNT_DUE, pool=pool, lane=lane.value, app_id=app_id, now=now, limit=limit
        )
        count: int = rows[0][0]
        return count

    async def count(self, now: int) -> dict[tuple[str, int], JobCount]:
        rows = await self._engine.fetch_slowly(COUNT, now=now)
        return {(app_id, lane): JobCount(*counts) for app_id, lane, *counts in rows}

    async def count_stuck(self) -> int:
        rows = await self._engine.fetch_slowly(COUNT_STUCK)
        count: int = rows[0][0]
        return count


def add(jobs: Sequence[Job]) -> Step:
    """Return the step that adds new jobs."""
    return ADD_JOB.many([JOBS.bind(job) for job in jobs])


def add_or_hasten(jobs: Sequence[Job]) -> Step:
    """Return the step that adds jobs; an existing job is due at the earlier of the two times."""
    return ADD_OR_HASTEN_JOB.many([JOBS.bind(job) for job in jobs])


def end(job: Job) -> Step:
    """Return the guard that deletes a job if its claim still holds."""
    return END.guard(id=job.id, token=job.token)


def reschedule(job: Job, due_at: int, subject: str) -> Step:
    """Return the guard that gives a job another time if its claim still holds."""
    return RESCHEDULE.guard(id=job.id, token=job.token, due_at=due_at, subject=subject)


def set_error(job: Job, failure: Reschedule | DeadLetter, now: int) -> Step:
    """Return the step that shows the error of a failed try in the event."""
    return SET_ERROR.step(
        app_id=job.app_id,
        event_id=job.event_id,
        tries=job.tries + (isinstance(failure, DeadLetter) or failure.is_failure),
        error=(failure.error or "")[:ERROR_LENGTH],
        is_dead=int(isinstance(failure, DeadLetter)),
        now=now,
    )
