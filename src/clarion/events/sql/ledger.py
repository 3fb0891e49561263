"""What of the pipeline is lost, in SQL: open rows whose job is gone.

Each statement reads a range of ids, so of time, and is one snapshot: a job that ends and the row
that it ends are committed together.
"""

from __future__ import annotations

from clarion.access.sql import of_living_apps
from clarion.clock import first_id_of
from clarion.events.sql.expressions import is_without_job
from clarion.history.sql.lost import SELECT_LOST
from clarion.store.engine import Engine
from clarion.store.statement import Value, statement

# While an event is decided its job has its id. An audience that is expanded has jobs of its own for
# the users: those are looked for in the second statement.
SELECT_EVENTS = statement(
    "select_events_without_job",
    f"""SELECT events.app_id, events.id FROM {of_living_apps("events")}
    AND events.id >= :first_id AND events.id < :last_id
    AND events.status IN ('scheduled', 'pending', 'processing')
    AND {is_without_job("events.id")}
    LIMIT :limit""",
)
IS_WORKED_ON = statement(
    "is_event_worked_on",
    """SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs WHERE pool = '' AND lane IN (0, 1, 2, 3)
    AND app_id = :app_id AND event_id = :event_id)""",
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
        deliveries = await self._engine.fetch_in_background(SELECT_LOST, **ids)
        return frozenset([*lost, *(notification_id for _, notification_id in deliveries)])

    async def _has_no_job(self, app_id: str, event_id: str) -> bool:
        return not await self._engine.fetch_in_background(
            IS_WORKED_ON, app_id=app_id, event_id=event_id
        )
