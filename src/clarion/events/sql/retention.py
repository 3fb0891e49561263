"""What has been kept long enough, in SQL: found first, then deleted row by row in small steps.

In one statement PostgreSQL may join the whole table with the few that were found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.events.sql.jobs import DEAD_LANE
from clarion.push.sql.messages import count_changed
from clarion.store.statement import Statement, Unit, statement

if TYPE_CHECKING:
    from clarion.store.engine import Engine

# The deliveries are in the order of their notifications' ids, and so of time; one at least each.
SELECT_OLD_NOTIFICATIONS = statement(
    "select_old_notifications",
    """SELECT notification_id, app_id, user_id FROM deliveries WHERE notification_id < :before
    ORDER BY notification_id LIMIT :limit""",
)
SELECT_OLD_EVENTS = statement(
    "select_old_events",
    """SELECT app_id, id FROM events WHERE app_id = :app_id AND id < :before
    AND updated_at < :updated_before AND status NOT IN ('scheduled', 'pending', 'processing')
    ORDER BY id LIMIT :limit""",
)
DELETE_EVENT = statement(
    "delete_event", "DELETE FROM events WHERE app_id = :app_id AND id = :id RETURNING id"
)

# What failed of an event could be replayed as long as there was the event.
DELETE_DEAD_JOBS = statement(
    "delete_dead_jobs", f"DELETE FROM jobs WHERE event_id = :id AND lane = {DEAD_LANE}"
)

SELECT_OLD_DEVICES = statement(
    "select_old_devices",
    """SELECT app_id, id FROM devices WHERE invalidated_at > 0 AND invalidated_at < :before
    ORDER BY invalidated_at LIMIT :limit""",
)


def _select_expired(name: str, table: str, key: str) -> Statement:
    return statement(
        f"select_expired_{name}",
        f"""SELECT app_id, {key} FROM {table} WHERE expires_at <= :now
        ORDER BY expires_at LIMIT :limit""",
    )


def _delete_expired(name: str, table: str, key: str) -> Statement:
    return statement(
        f"delete_expired_{name}",
        f"""DELETE FROM {table} WHERE app_id = :app_id AND {key} = :id AND expires_at <= :now
        RETURNING app_id""",
    )


SELECT_OLD_DEDUPES = _select_expired("dedupes", "dedupes", "id")
DELETE_DEDUPE = _delete_expired("dedupe", "dedupes", "id")
SELECT_OLD_COUNTS = _select_expired("limit_counts", "limit_counts", "id")
DELETE_COUNT = _delete_expired("limit_count", "limit_counts", "id")
SELECT_OLD_ANSWERS = _select_expired("answers", "idempotency_keys", "key")
DELETE_ANSWER = _delete_expired("answer", "idempotency_keys", "key")


class SqlRetention:
    """The `Retention` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_old_notifications(
        self, before: int, limit: int
    ) -> dict[tuple[str, str], list[str]]:
        """Return notifications made before a time, by app and person."""
        rows = await self._engine.fetch_slowly(
            SELECT_OLD_NOTIFICATIONS, before=first_id_of(before), limit=limit
        )
        found: dict[tuple[str, str], list[str]] = {}
        for notification_id, app_id, user_id in rows:
            mine = found.setdefault((app_id, user_id), [])
            if notification_id not in mine[-1:]:
                mine.append(notification_id)
        return found

    async def prune_events(self, app_id: str, before: int, limit: int) -> int:
        """Delete events that are over."""
        found = await self._engine.fetch_slowly(
            SELECT_OLD_EVENTS,
            app_id=app_id,
            before=first_id_of(before),
            # One that was scheduled for long is not old when it is told.
            updated_before=before,
            limit=limit,
        )
        rows = [DELETE_EVENT.bind(app_id=a, id=i) for a, i in found]
        if not rows:
            return 0
        jobs = DELETE_DEAD_JOBS.many([DELETE_DEAD_JOBS.bind(id=i) for _, i in found])
        done = await self._engine.write(Unit(app_id, (DELETE_EVENT.many(rows), jobs)))
        return len(done[0]) if done else 0

    async def find_old_devices(self, before: int, limit: int) -> tuple[tuple[str, str], ...]:
        """Return devices that ended before a time, as app and device."""
        rows = await self._engine.fetch_slowly(SELECT_OLD_DEVICES, before=before, limit=limit)
        return tuple((app_id, device_id) for app_id, device_id in rows)

    async def prune_claims(self, now: int, limit: int) -> int:
        """Delete dedupe keys and limit counts."""
        keys = await self._prune(SELECT_OLD_DEDUPES, DELETE_DEDUPE, now, limit)
        counts = await self._prune(SELECT_OLD_COUNTS, DELETE_COUNT, now, limit)
        return max(keys, counts)

    async def prune_answers(self, now: int, limit: int) -> int:
        """Delete idempotency keys."""
        return await self._prune(SELECT_OLD_ANSWERS, DELETE_ANSWER, now, limit)

    async def _prune(self, select: Statement, delete: Statement, now: int, limit: int) -> int:
        found = await self._engine.fetch_slowly(select, now=now, limit=limit)
        rows = [delete.bind(app_id=a, id=i, now=now) for a, i in sorted(found)]
        return await count_changed(self._engine, "", delete.many(rows))


def first_id_of(moment: int) -> str:
    """Return a text that sorts before every id made at that time or later: ids begin with it."""
    digits = f"{max(moment, 0):012x}"
    return f"{digits[:8]}-{digits[8:]}"
