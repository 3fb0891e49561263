"""Dedupe keys and limit counts in SQL: what decisions claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clarion.events.model import EarlierNotification, JobOutcome
from clarion.history.sql.notifications import HOLDER, JOIN_HOLDER
from clarion.store.engine import Engine
from clarion.store.statement import Step, keys_of, statement

SELECT_EARLIER = statement(
    "select_earlier_notifications",
    f"""SELECT d.id, d.notification_id, {HOLDER} FROM dedupes d {JOIN_HOLDER}
    WHERE d.app_id = :app_id AND d.expires_at > :now
    AND d.id IN (SELECT key FROM json_each(:ids))""",
)
SELECT_LIMIT_COUNTS = statement(
    "select_limit_counts",
    """SELECT id, used FROM limit_counts
    WHERE app_id = :app_id AND id IN (SELECT key FROM json_each(:ids))""",
)
CLAIM_DEDUPE_KEY = statement(
    "claim_dedupe_key",
    """INSERT INTO dedupes (app_id, id, user_id, notification_id, expires_at)
    VALUES (:app_id, :id, :user_id, :notification_id, :expires_at)
    ON CONFLICT (app_id, id) DO UPDATE SET
    notification_id = excluded.notification_id, expires_at = excluded.expires_at
    WHERE dedupes.expires_at <= :now OR dedupes.notification_id = :expected_holder RETURNING id""",
)
CLAIM_LIMIT = statement(
    "claim_limit",
    """INSERT INTO limit_counts (app_id, id, used, expires_at)
    VALUES (:app_id, :id, 1, :expires_at)
    ON CONFLICT (app_id, id) DO UPDATE SET used = limit_counts.used + 1
    WHERE limit_counts.used < :limit RETURNING used""",
)


class SqlClaims:
    """The `Claims` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_earlier(
        self, app_id: str, ids: Iterable[str], now: int
    ) -> dict[str, EarlierNotification]:
        rows = await self._engine.fetch(SELECT_EARLIER, app_id=app_id, ids=keys_of(ids), now=now)
        return {
            key: EarlierNotification(
                notification_id=holder,
                count=count,
                is_unread=bool(is_unread),
                is_deleted=bool(is_deleted),
            )
            for key, holder, count, is_unread, is_deleted in rows
        }

    async def find_limit_counts(self, app_id: str, ids: Iterable[str]) -> dict[str, int]:
        rows = await self._engine.fetch(SELECT_LIMIT_COUNTS, app_id=app_id, ids=keys_of(ids))
        return {row[0]: row[1] for row in rows}


def take(outcome: JobOutcome, now: int) -> Iterator[Step]:
    """Yield the guards that take the dedupe key and the uses of limits of an outcome."""
    job, dedupe = outcome.job, outcome.dedupe_claim
    if dedupe is not None:
        yield CLAIM_DEDUPE_KEY.guard(
            app_id=job.app_id,
            id=dedupe.id,
            user_id=job.user_id,
            notification_id=dedupe.notification_id,
            expected_holder=dedupe.expected_holder or "",
            expires_at=dedupe.expires_at,
            now=now,
        )
    for each in outcome.limit_claims:
        yield CLAIM_LIMIT.guard(
            app_id=job.app_id, id=each.id, limit=each.limit, expires_at=each.expires_at
        )
