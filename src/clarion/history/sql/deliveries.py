"""Deliveries and attempts in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from clarion.catalog.model import Channel
from clarion.history.model import Attempt, Delivery
from clarion.history.sql.ended import Source, restore
from clarion.history.tables import ATTEMPTS, DELIVERIES
from clarion.store.engine import Engine
from clarion.store.statement import Step, Unit, keys_of, statement

# For statements of other slices. Both statuses are written out, so that SQLite sees that the
# partial index holds them all.
IS_COLLECTED = "status = 'collected' AND status IN ('held', 'collected')"
_OWNER = ("notification_id", "channel", "app_id", "user_id")
_WIDTH = len(DELIVERIES.names)
_BY_CHANNEL = attrgetter("channel")

# A delivered notification stays delivered, also if another device fails. The report about an
# attempt may be stored before its outcome; then the report counts.
_IS_REPORTED = """(deliveries.status = 'delivered'
    OR deliveries.reason = 'undelivered' AND excluded.status = 'sent')"""
_INSERT = f"INSERT INTO deliveries ({DELIVERIES.columns}) VALUES ({DELIVERIES.parameters})"
ADD_DELIVERY = statement("add_delivery", _INSERT)
PUT_DELIVERY = statement(
    "put_delivery",
    f"""{_INSERT} ON CONFLICT (notification_id, channel) DO UPDATE SET
    {DELIVERIES.assign_others(*_OWNER, "status", "delivered_at", "reason")},
    status = CASE WHEN {_IS_REPORTED} THEN deliveries.status ELSE excluded.status END,
    reason = CASE WHEN {_IS_REPORTED} THEN deliveries.reason ELSE excluded.reason END,
    delivered_at = COALESCE(deliveries.delivered_at, excluded.delivered_at)""",
)
# A user with many devices may have more, after all retries.
ATTEMPTS_SHOWN = 1_000
# A report may come before the outcome of the attempt is written: then the delivery is queued yet,
# and may have no attempt.
_REPORTED = """WHERE notification_id = :notification_id AND channel = :channel AND app_id = :app_id
    AND status IN ('queued', 'sent') AND (last_attempt_at IS NULL OR last_attempt_at >= :since)
    RETURNING notification_id"""
CONFIRM = statement(
    "confirm_delivery",
    f"UPDATE deliveries SET status = 'delivered', delivered_at = :now {_REPORTED}",
)
REPORT_FAILED = statement(
    "report_failed_delivery",
    f"""UPDATE deliveries SET status = 'failed', reason = 'undelivered', decided_at = :now,
    error_code = :error_code, error_message = :error_message {_REPORTED}""",
)
ADD_ATTEMPT = statement(
    "add_attempt",
    f"""INSERT INTO attempts ({ATTEMPTS.columns}) VALUES ({ATTEMPTS.parameters})
    ON CONFLICT DO NOTHING""",
)
SELECT_DELIVERIES = statement(
    "select_deliveries",
    f"""SELECT {", ".join(f"d.{name}" for name in DELIVERIES.names)},
    n.id, n.app_id, n.user_id, n.created_at, n.ended_deliveries
    FROM (SELECT key FROM json_each(:ids)) AS wanted CROSS JOIN notifications n
    LEFT JOIN deliveries d ON d.notification_id = n.id AND d.app_id = :app_id
    WHERE n.app_id = :app_id AND n.id = wanted.key""",
)
SELECT_WORKED_ON = statement(
    "select_deliveries_worked_on",
    f"""SELECT {DELIVERIES.columns} FROM deliveries
    WHERE app_id = :app_id AND notification_id IN (SELECT key FROM json_each(:ids))
    ORDER BY notification_id, channel""",
)
LIST_ATTEMPTS = statement(
    "list_attempts",
    f"""SELECT {ATTEMPTS.columns} FROM (SELECT {ATTEMPTS.columns} FROM attempts
      WHERE notification_id = :notification_id
      ORDER BY attempted_at DESC, number DESC LIMIT {ATTEMPTS_SHOWN}) AS newest
    ORDER BY channel, number, device_id""",
)
# All of them: a device whose first attempt was left out would be sent to again.
LIST_ATTEMPTS_OF_CHANNEL = statement(
    "list_attempts_of_channel",
    f"""SELECT {ATTEMPTS.columns} FROM attempts
    WHERE notification_id = :notification_id AND channel = :channel ORDER BY number, device_id""",
)
LIST_COLLECTED = statement(
    "list_collected_deliveries",
    f"""SELECT {DELIVERIES.columns} FROM deliveries WHERE app_id = :app_id AND user_id = :user_id
    AND {IS_COLLECTED} AND digest = :digest
    ORDER BY notification_id DESC LIMIT :limit""",
)
LIST_WAITING = statement(
    "list_waiting_deliveries",
    f"""SELECT {DELIVERIES.columns} FROM deliveries WHERE app_id = :app_id AND user_id = :user_id
    AND status IN ('held', 'collected') AND notification_id > :after
    ORDER BY notification_id, channel LIMIT :limit""",
)


def exists(condition: str) -> str:
    """Return the condition that a delivery exists that meets another condition."""
    return f"EXISTS (SELECT 1 FROM deliveries WHERE {condition})"


def is_missing(jobs: str) -> str:
    """Return the condition that a digest's job has no delivery."""
    return f"""(SELECT d.digest FROM deliveries d WHERE d.app_id = {jobs}.app_id
      AND d.user_id = {jobs}.user_id AND d.status = 'collected'
      AND d.status IN ('held', 'collected') AND d.digest = {jobs}.id LIMIT 1) IS NULL"""


# Those of the jobs `j` that decide them again.
JOIN_WAITING = """JOIN deliveries d
    ON d.app_id = j.app_id AND d.user_id = j.user_id AND d.status IN ('held', 'collected')
    AND COALESCE(d.digest, d.notification_id || '/held') = j.id"""


class SqlDeliveries:
    """The `Deliveries` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, tuple[Delivery, ...]]:
        rows = await self._engine.fetch(SELECT_DELIVERIES, app_id=app_id, ids=keys_of(ids))
        found: dict[str, list[Delivery]] = {}
        for row in rows:
            *source, ended = row[_WIDTH:]
            if (known := found.get(source[0])) is None:
                known = found[source[0]] = restore(Source(*source), ended)
            if row[0] is not None:
                known.append(DELIVERIES.read(row))
        return {id_: tuple(sorted(each, key=_BY_CHANNEL)) for id_, each in found.items()}

    async def find_worked_on(
        self, app_id: str, ids: Iterable[str]
    ) -> dict[str, tuple[Delivery, ...]]:
        rows = await self._engine.fetch(SELECT_WORKED_ON, app_id=app_id, ids=keys_of(ids))
        found: dict[str, tuple[Delivery, ...]] = {}
        for each in map(DELIVERIES.read, rows):
            found[each.notification_id] = (*found.get(each.notification_id, ()), each)
        return found

    async def list_attempts(self, notification_id: str) -> tuple[Attempt, ...]:
        rows = await self._engine.fetch(LIST_ATTEMPTS, notification_id=notification_id)
        return tuple(map(ATTEMPTS.read, rows))

    async def list_attempts_of_channel(
        self, notification_id: str, channel: Channel
    ) -> tuple[Attempt, ...]:
        rows = await self._engine.fetch(
            LIST_ATTEMPTS_OF_CHANNEL, notification_id=notification_id, channel=channel.value
        )
        return tuple(map(ATTEMPTS.read, rows))

    async def list_collected(
        self, app_id: str, user_id: str, digest: str, limit: int
    ) -> tuple[Delivery, ...]:
        rows = await self._engine.fetch(
            LIST_COLLECTED, app_id=app_id, user_id=user_id, digest=digest, limit=limit
        )
        return tuple(map(DELIVERIES.read, rows))

    async def list_waiting(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> tuple[Delivery, ...]:
        rows = await self._engine.fetch(
            LIST_WAITING, app_id=app_id, user_id=user_id, after=after or "", limit=limit
        )
        return tuple(map(DELIVERIES.read, rows))


class SqlDeliveryReports:
    """The `DeliveryReports` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def confirm(
        self, app_id: str, notification_id: str, channel: Channel, *, since: int, now: int
    ) -> bool:
        step = CONFIRM.guard(
            app_id=app_id,
            notification_id=notification_id,
            channel=channel.value,
            since=since,
            now=now,
        )
        return await self._engine.write(Unit(notification_id, (step,), app_id)) is not None

    async def fail(
        self,
        app_id: str,
        notification_id: str,
        channel: Channel,
        *,
        error_code: str,
        error_message: str,
        since: int,
        now: int,
    ) -> bool:
        step = REPORT_FAILED.guard(
            app_id=app_id,
            notification_id=notification_id,
            channel=channel.value,
            error_code=error_code,
            error_message=error_message,
            since=since,
            now=now,
        )
        return await self._engine.write(Unit(notification_id, (step,), app_id)) is not None


def add(deliveries: Sequence[Delivery]) -> Step:
    """Return the step that adds the deliveries of a new notification."""
    return ADD_DELIVERY.many([DELIVERIES.bind(each) for each in deliveries])


def put(deliveries: Sequence[Delivery]) -> Step:
    """Return the step that adds deliveries or replaces them."""
    return PUT_DELIVERY.many([DELIVERIES.bind(each) for each in deliveries])


def add_attempts(attempts: Sequence[Attempt]) -> Step:
    """Return the step that adds attempts; those already stored do not change."""
    return ADD_ATTEMPT.many([ATTEMPTS.bind(each) for each in attempts])
