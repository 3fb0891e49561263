"""Deliveries and attempts in SQL: what became of a notification, channel by channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from clarion.catalog.model import Channel
from clarion.events.model import Attempt, Delivery, DeliveryStatus, PastDecision, ReasonCode
from clarion.store.keyed import keys_of
from clarion.store.statement import Row, statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.store.engine import Engine

_COLUMNS = """notification_id, channel, app_id, user_id, status, reason, rule, until,
past_decisions, digest, count, attempt_count, provider, sent_at, delivered_at, last_attempt_at,
error_code, error_message, decided_at"""
_ATTEMPT = """notification_id, channel, number, device_id, status, provider_response, error_code,
error_message, attempted_at"""

PUT_DELIVERY = statement(
    "put_delivery",
    f"""INSERT INTO deliveries ({_COLUMNS}) VALUES (:notification_id, :channel, :app_id, :user_id,
    :status, :reason, :rule, :until, :past_decisions,
    :digest, :count, :attempt_count, :provider, :sent_at,
    :delivered_at, :last_attempt_at, :error_code, :error_message, :decided_at)
    ON CONFLICT (notification_id, channel) DO UPDATE SET status = excluded.status,
    reason = excluded.reason, rule = excluded.rule, until = excluded.until,
    past_decisions = excluded.past_decisions, digest = excluded.digest, count = excluded.count,
    attempt_count = excluded.attempt_count, provider = excluded.provider,
    sent_at = excluded.sent_at, delivered_at = excluded.delivered_at,
    last_attempt_at = excluded.last_attempt_at, error_code = excluded.error_code,
    error_message = excluded.error_message, decided_at = excluded.decided_at""",
)
ADD_ATTEMPT = statement(
    "add_attempt",
    f"""INSERT INTO attempts ({_ATTEMPT}) VALUES (:notification_id, :channel, :number, :device_id,
    :status, :provider_response, :error_code, :error_message, :attempted_at)
    ON CONFLICT DO NOTHING""",
)
SELECT_DELIVERIES = statement(
    "select_deliveries",
    f"""SELECT {_COLUMNS} FROM deliveries
    WHERE app_id = :app_id AND notification_id IN (SELECT key FROM json_each(:ids))
    ORDER BY notification_id, channel""",
)
SELECT_ATTEMPTS = statement(
    "select_attempts",
    f"""SELECT {_ATTEMPT} FROM attempts WHERE notification_id = :notification_id
    ORDER BY channel, number, device_id LIMIT 1000""",
)
# The states are written out here too, so that SQLite sees that the partial index holds them all.
SELECT_COLLECTED = statement(
    "select_collected_deliveries",
    f"""SELECT {_COLUMNS} FROM deliveries WHERE app_id = :app_id AND user_id = :user_id
    AND status = 'collected' AND status IN ('held', 'collected') AND digest = :digest
    ORDER BY notification_id DESC LIMIT :limit""",
)
SELECT_WAITING = statement(
    "select_waiting_deliveries",
    f"""SELECT {_COLUMNS} FROM deliveries WHERE app_id = :app_id AND user_id = :user_id
    AND status IN ('held', 'collected') AND notification_id > :after
    ORDER BY notification_id, channel LIMIT :limit""",
)
_encode = msgspec.json.Encoder().encode
_decode_story = msgspec.json.Decoder(tuple[PastDecision, ...]).decode
_NO_STORY = "[]"


class SqlDeliveries:
    """The `Deliveries` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, tuple[Delivery, ...]]:
        """Return the deliveries of notifications, by their ids."""
        rows = await self._engine.fetch(SELECT_DELIVERIES, app_id=app_id, ids=keys_of(ids))
        found: dict[str, tuple[Delivery, ...]] = {}
        for row in rows:
            found[row[0]] = (*found.get(row[0], ()), read_delivery(row))
        return found

    async def attempts(self, notification_id: str) -> tuple[Attempt, ...]:
        """Return the attempts to deliver a notification."""
        rows = await self._engine.fetch(SELECT_ATTEMPTS, notification_id=notification_id)
        return tuple(_attempt(row) for row in rows)

    async def collected(
        self, app_id: str, user_id: str, digest: str, limit: int
    ) -> tuple[Delivery, ...]:
        """Return what waits for a digest, newest first."""
        rows = await self._engine.fetch(
            SELECT_COLLECTED, app_id=app_id, user_id=user_id, digest=digest, limit=limit
        )
        return tuple(read_delivery(row) for row in rows)

    async def waiting(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> tuple[Delivery, ...]:
        """Return what is held or collected for a person."""
        rows = await self._engine.fetch(
            SELECT_WAITING, app_id=app_id, user_id=user_id, after=after or "", limit=limit
        )
        return tuple(read_delivery(row) for row in rows)


def bind_delivery(delivery: Delivery) -> Row:
    """Return the row of a delivery."""
    return PUT_DELIVERY.bind(
        notification_id=delivery.notification_id,
        channel=delivery.channel.value,
        app_id=delivery.app_id,
        user_id=delivery.user_id,
        status=delivery.status.value,
        reason=delivery.reason.value,
        rule=delivery.rule,
        until=delivery.until,
        past_decisions=_encode(delivery.past_decisions).decode()
        if delivery.past_decisions
        else _NO_STORY,
        digest=delivery.digest,
        count=delivery.count,
        attempt_count=delivery.attempt_count,
        provider=delivery.provider,
        sent_at=delivery.sent_at,
        delivered_at=delivery.delivered_at,
        last_attempt_at=delivery.last_attempt_at,
        error_code=delivery.error_code,
        error_message=delivery.error_message,
        decided_at=delivery.decided_at,
    )


def bind_attempt(attempt: Attempt) -> Row:
    """Return the row of an attempt."""
    return ADD_ATTEMPT.bind(
        notification_id=attempt.notification_id,
        channel=attempt.channel.value,
        number=attempt.number,
        device_id=attempt.device_id,
        status=attempt.status,
        provider_response=attempt.provider_response,
        error_code=attempt.error_code,
        error_message=attempt.error_message,
        attempted_at=attempt.attempted_at,
    )


def read_delivery(row: Row) -> Delivery:
    """Return the delivery that a row holds."""
    return Delivery(
        notification_id=row[0],
        channel=Channel(row[1]),
        app_id=row[2],
        user_id=row[3],
        status=DeliveryStatus(row[4]),
        reason=ReasonCode(row[5]),
        rule=row[6],
        until=row[7],
        past_decisions=() if row[8] == _NO_STORY else _decode_story(row[8]),
        digest=row[9],
        count=row[10],
        attempt_count=row[11],
        provider=row[12],
        sent_at=row[13],
        delivered_at=row[14],
        last_attempt_at=row[15],
        error_code=row[16],
        error_message=row[17],
        decided_at=row[18],
    )


def _attempt(row: Row) -> Attempt:
    return Attempt(
        notification_id=row[0],
        channel=Channel(row[1]),
        number=row[2],
        device_id=row[3],
        status=row[4],
        provider_response=row[5],
        error_code=row[6],
        error_message=row[7],
        attempted_at=row[8],
    )
