"""Idempotency keys in SQL: a guard that comes first in a unit, and the response it stored."""

from __future__ import annotations

from hmac import compare_digest

from clarion.errors import IdempotencyKeyReused, StoreUnavailable
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.idempotency.tables import IDEMPOTENCY_KEYS
from clarion.store.engine import Engine
from clarion.store.statement import Row, Step, Unit, statement

CLAIM_KEY = statement(
    "claim_idempotency_key",
    f"""{IDEMPOTENCY_KEYS.insert}
    ON CONFLICT (app_id, key) DO UPDATE SET {IDEMPOTENCY_KEYS.assign_others("app_id", "key")}
    WHERE idempotency_keys.expires_at <= excluded.created_at
    RETURNING key""",
)
SELECT_ANSWER = statement(
    "select_idempotent_answer",
    """SELECT fingerprint, answer FROM idempotency_keys
    WHERE app_id = :app_id AND key = :key AND expires_at > :now""",
)
# A response may be pruned, or erased with its user, between the claim that it refuses and the read
# of it: then the key is free, and nothing is stored yet.
_ATTEMPTS = 2


def claim(once: IdempotencyClaim) -> Step:
    """Return the guard that only the first request with this key passes."""
    return CLAIM_KEY.guard(**IDEMPOTENCY_KEYS.values(once))


async def write_once(
    engine: Engine,
    unit_key: str,
    once: IdempotencyClaim | None,
    *steps: Step,
    owner: str | None = None,
) -> StoredResponse | tuple[tuple[Row, ...], ...] | None:
    """Commit steps, with a claim for the first request only, and return the rows of each.

    A repeated request gets the stored response. None if another guard refused the unit.
    """
    if once is None:
        return await engine.write(Unit(unit_key, steps, owner))
    unit = Unit(unit_key, (claim(once), *steps), owner or once.app_id)
    for _ in range(_ATTEMPTS):
        if (rows := await engine.write(unit)) is not None:
            return rows[1:]
        if (replay := await replay_if_claimed(engine, once)) is not None:
            return replay
    if any(step.is_guard for step in steps):
        return None
    raise StoreUnavailable


async def replay_if_claimed(engine: Engine, once: IdempotencyClaim) -> StoredResponse | None:
    """Return the response to the first request with this key, or None if the key is free.

    It is free if another guard refused the unit. `IdempotencyKeyReused` if the first request was
    a different one.
    """
    rows = await engine.fetch(SELECT_ANSWER, app_id=once.app_id, key=once.key, now=once.created_at)
    if not rows:
        return None
    fingerprint, answer = rows[0]
    if not compare_digest(fingerprint, once.fingerprint):
        raise IdempotencyKeyReused
    return StoredResponse(answer)


class IdempotencyKeys:
    """The keys of all apps, each with the response to its first request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Return the response to the first request with this key; None if the key is free.

        `IdempotencyKeyReused` if the first request was a different one.
        """
        return await replay_if_claimed(self._engine, once)

    async def store(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Store the response; return the other one if another request was faster."""
        stored = await write_once(self._engine, once.key, once)
        return stored if isinstance(stored, StoredResponse) else None
