"""The keys of the hashes of erased users in SQL; sealed."""

from __future__ import annotations

from clarion.access.port import Vault
from clarion.people.erasure.model import hash_key_context
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement

FIND = statement("find_erasure_key", "SELECT key FROM erasure_keys WHERE app_id = :app_id")
ADD = statement(
    "add_erasure_key",
    """INSERT INTO erasure_keys (app_id, key, created_at) VALUES (:app_id, :key, :now)
    ON CONFLICT (app_id) DO NOTHING""",
)


class HashKeys:
    """The keys by which apps hash user ids, one for each app."""

    def __init__(self, engine: Engine, vault: Vault) -> None:
        self._engine = engine
        self._vault = vault

    async def find(self, app_id: str) -> bytes | None:
        """Return the key of an app, or None if it has none yet."""
        rows = await self._engine.fetch(FIND, app_id=app_id)
        return self._vault.open(rows[0][0], hash_key_context(app_id)) if rows else None

    async def ensure(self, app_id: str, key: bytes, now: int) -> bytes:
        """Store the key unless the app has one; return that of the app."""
        sealed = self._vault.seal(key, hash_key_context(app_id))
        await self._engine.write(
            Unit(app_id, (ADD.step(app_id=app_id, key=sealed, now=now),), app_id)
        )
        return await self.find(app_id) or key
