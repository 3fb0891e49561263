"""API keys of administrators in SQL."""

from __future__ import annotations

from clarion.access.administrators.model import LIVE_ADMIN_KEYS_LIMIT, AdminKey
from clarion.access.tables import ADMIN_KEYS
from clarion.errors import Conflict
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page, cut_page
from clarion.store.engine import Engine, explain_conflict
from clarion.store.statement import Unit, statement

# A guard, which counts what the same batch has added, too.
ADD = statement(
    "add_admin_key",
    f"""INSERT INTO admin_keys ({ADMIN_KEYS.columns}) SELECT {ADMIN_KEYS.parameters}
    WHERE (SELECT COUNT(*) FROM admin_keys WHERE administrator_id = :administrator_id
    AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :created_at))
    < {LIVE_ADMIN_KEYS_LIMIT} RETURNING id""",
)
SELECT = statement(
    "select_admin_key", f"SELECT {ADMIN_KEYS.columns} FROM admin_keys WHERE id = :id"
)
LIST = statement(
    "list_admin_keys",
    f"""SELECT {ADMIN_KEYS.columns} FROM admin_keys
    WHERE administrator_id = :administrator_id AND id > :after ORDER BY id LIMIT :limit""",
)
REVOKE = statement(
    "revoke_admin_key",
    f"""UPDATE admin_keys SET revoked_at = COALESCE(revoked_at, :now)
    WHERE id = :id AND administrator_id = :administrator_id RETURNING {ADMIN_KEYS.columns}""",
)
REVOKE_KEYS = statement(
    "revoke_admin_keys",
    """UPDATE admin_keys SET revoked_at = COALESCE(revoked_at, :now)
    WHERE administrator_id = :administrator_id""",
)
DELETE_KEYS = statement(
    "delete_admin_keys", "DELETE FROM admin_keys WHERE administrator_id = :administrator_id"
)
TOUCH = statement("touch_admin_key", "UPDATE admin_keys SET last_used_at = :now WHERE id = :id")


class AdminKeys:
    """The API keys of administrators."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, key: AdminKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key. With `once`, a repeated request gets the first response.

        `Conflict` if the administrator has `LIVE_ADMIN_KEYS_LIMIT` live ones.
        """
        owner, add = key.administrator_id, ADD.guard(**ADMIN_KEYS.values(key))
        with explain_conflict("An admin API key with this id already exists."):
            done = await idempotency.write_once(self._engine, owner, once, add)
        if done is None:
            raise Conflict(
                f"An administrator can have {LIVE_ADMIN_KEYS_LIMIT} live admin API keys. "
                "Revoke those that are not needed first."
            )
        return done if isinstance(done, StoredResponse) else None

    async def find(self, key_id: str) -> AdminKey | None:
        """Return the key, in any state, or None."""
        return ADMIN_KEYS.first(await self._engine.fetch(SELECT, id=key_id))

    async def list(self, administrator_id: str, *, after: str | None, limit: int) -> Page[AdminKey]:
        """Return the keys of an administrator in the order of their ids."""
        rows = await self._engine.fetch(
            LIST, administrator_id=administrator_id, after=after or "", limit=limit + 1
        )
        return cut_page([*map(ADMIN_KEYS.read, rows)], limit, lambda each: each.id)

    async def revoke(self, administrator_id: str, key_id: str, now: int) -> AdminKey | None:
        """Revoke a key and return it; None if the administrator does not have it. Idempotent."""
        guard = REVOKE.guard(id=key_id, administrator_id=administrator_id, now=now)
        done = await self._engine.write(Unit(administrator_id, (guard,)))
        return ADMIN_KEYS.read(done[0][0]) if done else None

    async def touch(self, key_id: str, now: int) -> None:
        """Record when a key was last used."""
        await self._engine.write(Unit(key_id, (TOUCH.step(id=key_id, now=now),)))
