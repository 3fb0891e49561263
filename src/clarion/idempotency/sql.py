"""What happened once: the guard that comes first in a unit, and the answer it finds later."""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from clarion.errors import IdempotencyKeyReused
from clarion.idempotency.model import StoredResponse
from clarion.store.statement import statement

if TYPE_CHECKING:
    from clarion.idempotency.model import IdempotencyClaim
    from clarion.store.engine import Engine
    from clarion.store.statement import Step

CLAIM_KEY = statement(
    "claim_idempotency_key",
    """INSERT INTO idempotency_keys (app_id, key, fingerprint, answer, created_at, expires_at)
    VALUES (:app_id, :key, :fingerprint, :answer, :now, :expires_at)
    ON CONFLICT (app_id, key) DO UPDATE SET
      fingerprint = excluded.fingerprint, answer = excluded.answer,
      created_at = excluded.created_at, expires_at = excluded.expires_at
    WHERE idempotency_keys.expires_at <= excluded.created_at
    RETURNING key""",
)
SELECT_ANSWER = statement(
    "select_idempotent_answer",
    """SELECT fingerprint, answer FROM idempotency_keys
    WHERE app_id = :app_id AND key = :key AND expires_at > :now""",
)


def claim(once: IdempotencyClaim) -> Step:
    """Return the guard that lets only the first request with this key pass."""
    return CLAIM_KEY.guard(
        app_id=once.app_id,
        key=once.key,
        fingerprint=once.fingerprint,
        answer=once.answer,
        now=once.now,
        expires_at=once.expires_at,
    )


async def replay_if_claimed(engine: Engine, once: IdempotencyClaim) -> StoredResponse | None:
    """Return what the first request was answered; `IdempotencyKeyReused` if it was another one.

    None if the key is free: then another guard of the unit refused it.
    """
    rows = await engine.fetch(SELECT_ANSWER, app_id=once.app_id, key=once.key, now=once.now)
    if not rows:
        return None
    fingerprint, answer = rows[0]
    if not compare_digest(fingerprint, once.fingerprint):
        raise IdempotencyKeyReused
    return StoredResponse(answer)
