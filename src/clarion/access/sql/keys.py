"""API keys in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.access.model import ApiKey, Scope
from clarion.idempotency import sql as idempotency
from clarion.pages import Page
from clarion.store.statement import Unit, statement

if TYPE_CHECKING:
    from clarion.idempotency.model import IdempotencyClaim, StoredResponse
    from clarion.store.engine import Engine

_COLUMNS = "id, app_id, label, scopes, secret_hash, created_at, expires_at, revoked_at"
INSERT_KEY = statement(
    "insert_api_key",
    f"""INSERT INTO api_keys ({_COLUMNS}) VALUES
    (:id, :app_id, :label, :scopes, :secret_hash, :created_at, :expires_at, :revoked_at)
    """,
)
SELECT_KEY = statement("select_api_key", f"SELECT {_COLUMNS} FROM api_keys WHERE id = :id")
SELECT_KEYS = statement(
    "select_api_keys_of_app",
    f"""SELECT {_COLUMNS} FROM api_keys WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT :limit""",
)
REVOKE_KEY = statement(
    "revoke_api_key",
    f"""UPDATE api_keys SET revoked_at = COALESCE(revoked_at, :now)
    WHERE id = :id AND app_id = :app_id RETURNING {_COLUMNS}""",
)


class SqlKeys:
    """The `Keys` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, key: ApiKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key, once."""
        insert = INSERT_KEY.step(
            id=key.id,
            app_id=key.app_id,
            label=key.label,
            scopes=" ".join(sorted(key.scopes)),
            secret_hash=key.secret_hash,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
        )
        if once is None:
            await self._engine.write(Unit(key.app_id, (insert,)))
            return None
        done = await self._engine.write(Unit(key.app_id, (idempotency.claim(once), insert)))
        return None if done else await idempotency.replay_if_claimed(self._engine, once)

    async def find(self, key_id: str) -> ApiKey | None:
        """Return the key whatever its state, or None."""
        rows = await self._engine.fetch(SELECT_KEY, id=key_id)
        return _key(*rows[0]) if rows else None

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[ApiKey]:
        """Return the app's keys in the order of their ids."""
        rows = await self._engine.fetch(
            SELECT_KEYS, app_id=app_id, after=after or "", limit=limit + 1
        )
        items = tuple(_key(*row) for row in rows[:limit])
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def revoke(self, app_id: str, key_id: str, now: int) -> ApiKey | None:
        """Revoke a key and return it; None if the app has no such key."""
        step = REVOKE_KEY.guard(id=key_id, app_id=app_id, now=now)
        done = await self._engine.write(Unit(app_id, (step,)))
        return _key(*done[0][0]) if done else None


def _key(
    key_id: str,
    app_id: str,
    label: str,
    scopes: str,
    secret_hash: bytes,
    created_at: int,
    expires_at: int | None,
    revoked_at: int | None,
) -> ApiKey:
    return ApiKey(
        id=key_id,
        app_id=app_id,
        label=label,
        scopes=frozenset(Scope(scope) for scope in scopes.split()),
        secret_hash=secret_hash,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )
