"""Events and jobs that were kept long enough, in SQL."""

from __future__ import annotations

from clarion.clock import first_id_of
from clarion.events.model import NEVER
from clarion.events.tables import DEAD_LANE
from clarion.history.sql import deliveries, notifications
from clarion.store.engine import Engine
from clarion.store.statement import Unit, keys_of, statement
from clarion.store.sweeps import count_changed

SELECT_OLD_EVENTS = statement(
    "select_old_events",
    """SELECT app_id, id FROM events WHERE app_id = :app_id AND id < :before
    AND updated_at < :updated_before AND status NOT IN ('scheduled', 'pending', 'processing')
    ORDER BY id LIMIT :limit""",
)
# Without the event the dead letters cannot be replayed. An event to all users may have a million of
# them, so they are deleted before it, a chunk at a time.
SELECT_DEAD_JOBS = statement(
    "select_dead_jobs",
    f"""SELECT id FROM jobs WHERE event_id IN (SELECT key FROM json_each(:ids))
    AND lane = {DEAD_LANE} LIMIT :limit""",
)
DELETE_DEAD_JOB = statement(
    "delete_dead_job", f"DELETE FROM jobs WHERE id = :id AND lane = {DEAD_LANE}"
)
DELETE_EVENT = statement(
    "delete_event",
    f"""DELETE FROM events WHERE app_id = :app_id AND id = :id
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE event_id = :id AND lane = {DEAD_LANE})
    RETURNING id""",
)


# Only jobs without a due time: the others find out when they are due. PostgreSQL runs a scalar
# subquery for each job; NOT EXISTS it may turn into a join that reads a whole table.
def _is_orphaned(jobs: str) -> str:
    return f"""lane IN (0, 1, 2, 3) AND due_at >= {NEVER} AND (
    kind = 'held' AND {notifications.is_missing(jobs)}
    OR kind = 'digest' AND {deliveries.is_missing(jobs)})"""


# Those that wait without a time may be all jobs that there are: each round looks at some of them.
SELECT_ORPHANED_JOBS = statement(
    "select_orphaned_jobs",
    f"""WITH chunk AS MATERIALIZED (
      SELECT id, kind, lane, due_at, app_id, user_id, subject FROM jobs
      WHERE id > :after ORDER BY id LIMIT :limit)
    SELECT id, CASE WHEN {_is_orphaned("chunk")} THEN 1 ELSE 0 END FROM chunk ORDER BY id""",
)
# Checked again: a new digest may have begun meanwhile, and then it has a due time.
DELETE_ORPHANED_JOB = statement(
    "delete_orphaned_job",
    f"DELETE FROM jobs WHERE id = :id AND {_is_orphaned('jobs')} RETURNING id",
)

# Jobs that a round looks at, for each that it may delete.
LOOKED_AT_FACTOR = 20


class SqlRetention:
    """The `Retention` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last_looked_at = ""  # the id of a job

    async def prune_events(self, app_id: str, before: int, limit: int) -> int:
        found = await self._engine.fetch_in_background(
            SELECT_OLD_EVENTS,
            app_id=app_id,
            before=first_id_of(before),
            # An event that was scheduled long ago is not old when it is decided.
            updated_before=before,
            limit=limit,
        )
        if not found:
            return 0
        dead = await self._engine.fetch_in_background(
            SELECT_DEAD_JOBS, ids=keys_of(event_id for _, event_id in found), limit=limit
        )
        jobs = DELETE_DEAD_JOB.many(sorted(dead))
        events = DELETE_EVENT.many([DELETE_EVENT.bind(app_id=a, id=i) for a, i in found])
        done = await self._engine.write(Unit(app_id, (jobs, events)))
        deleted = len(done[1]) if done else 0
        return deleted if deleted == len(found) else limit

    async def prune_orphaned_jobs(self, limit: int) -> int:
        most = limit * LOOKED_AT_FACTOR
        rows = await self._engine.fetch_in_background(
            SELECT_ORPHANED_JOBS, after=self._last_looked_at, limit=most
        )
        found = [id_ for id_, is_orphaned in rows if is_orphaned][:limit]
        last = rows[-1][0] if len(rows) == most else ""
        deleted = 0
        if found:
            step = DELETE_ORPHANED_JOB.many([DELETE_ORPHANED_JOB.bind(id=each) for each in found])
            deleted = await count_changed(self._engine, "", step)
        self._last_looked_at = found[-1] if len(found) == limit else last
        return deleted
