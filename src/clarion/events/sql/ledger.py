"""What of the pipeline is lost, in SQL: open rows whose job is gone.

Each statement reads a range of ids, so of time, and is one snapshot: a job that ends and the row
that it ends are committed together.
"""

from __future__ import annotations

from clarion.events.sql.retention import first_id_of
from clarion.store.engine import Engine
from clarion.store.statement import Value, statement

# While an event is decided its job has its id. An audience that is expanded has jobs of its own for
# the users: those are looked for in the second statement. PostgreSQL runs a scalar subquery for
# each row; NOT EXISTS it may turn into a join that reads a whole table.
SELECT_EVENTS = statement(
    "select_events_without_job",
    """SELECT events.app_id, events.id FROM apps CROSS JOIN events
    WHERE events.app_id = apps.id AND apps.deleted_at IS NULL
    AND events.id >= :first_id AND events.id < :last_id
    AND events.status IN ('scheduled', 'pending', 'processing')
    AND (SELECT jobs.id FROM jobs WHERE jobs.id = events.id) IS NULL
    LIMIT :limit""",
)
IS_WORKED_ON = statement(
    "is_event_worked_on",
    """SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs WHERE pool = '' AND lane IN (0, 1, 2, 3)
    AND app_id = :app_id AND event_id = :event_id)""",
)
SELECT_DELIVERIES = statement(
    "select_deliveries_without_job",
    """SELECT deliveries.app_id, deliveries.notification_id FROM deliveries
    WHERE deliveries.notification_id >= :first_id AND deliveries.notification_id < :last_id
    AND deliveries.status IN ('held', 'collected', 'queued')
    AND (SELECT jobs.id FROM jobs WHERE jobs.id = CASE deliveries.status
      WHEN 'held' THEN deliveries.notification_id || '/held'
      WHEN 'collected' THEN deliveries.digest
      ELSE deliveries.notification_id || '/' || deliveries.channel END) IS NULL
    AND (SELECT apps.deleted_at FROM apps WHERE apps.id = deliveries.app_id) IS NULL
    LIMIT :limit""",
)


class SqlLedger:
    """The `Ledger` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_lost(self, since: int, until: int, limit: int) -> frozenset[str]:
        return await self._find(first_id_of(since), first_id_of(until), limit)

    async def is_lost(self, row_id: str) -> bool:
        return bool(await self._find(row_id, f"{row_id}0", 1))

    async def _find(self, first_id: str, last_id: str, limit: int) -> frozenset[str]:
        ids: dict[str, Value] = {"first_id": first_id, "last_id": last_id, "limit": limit}
        events = await self._engine.fetch_in_background(SELECT_EVENTS, **ids)
        lost = [event_id for app_id, event_id in events if await self._has_no_job(app_id, event_id)]
        deliveries = await self._engine.fetch_in_background(SELECT_DELIVERIES, **ids)
        return frozenset([*lost, *(notification_id for _, notification_id in deliveries)])

    async def _has_no_job(self, app_id: str, event_id: str) -> bool:
        return not await self._engine.fetch_in_background(
            IS_WORKED_ON, app_id=app_id, event_id=event_id
        )
