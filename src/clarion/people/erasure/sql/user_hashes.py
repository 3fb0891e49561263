"""The keyed hash of a user id: it identifies an erased user without storing the id.

Each app has its own key, created at its first erasure. It is sealed with the master key and kept
when that is replaced: tombstones are recognised as long as they are stored.
"""

from __future__ import annotations

import hmac
import secrets

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
_KEY_BYTES = 32


class UserHashes:
    """Computes the hashes. A key never changes, so it is read once."""

    def __init__(self, engine: Engine, vault: Vault) -> None:
        self._engine = engine
        self._vault = vault
        self._known: dict[str, bytes] = {}  # not more than there are apps

    async def find(self, app_id: str, user_id: str) -> bytes | None:
        """Return the hash of a user id; None if the app has not erased a user yet."""
        key = await self._find_key(app_id)
        return _hash(key, user_id) if key else None

    async def make(self, app_id: str, user_id: str, now: int) -> bytes:
        """Return the hash of a user id, with a new key if the app has none."""
        if found := await self.find(app_id, user_id):
            return found
        key = secrets.token_bytes(_KEY_BYTES)
        sealed = self._vault.seal(key, hash_key_context(app_id))
        add = ADD.step(app_id=app_id, key=sealed, now=now)
        await self._engine.write(Unit(app_id, (add,), app_id))
        # Another node may have stored its key first, or the app may have been deleted.
        return await self.find(app_id, user_id) or _hash(key, user_id)

    async def _find_key(self, app_id: str) -> bytes | None:
        if app_id not in self._known:
            rows = await self._engine.fetch(FIND, app_id=app_id)
            if not rows:
                return None
            self._known[app_id] = self._vault.open(rows[0][0], hash_key_context(app_id))
        return self._known[app_id]


def _hash(key: bytes, user_id: str) -> bytes:
    return hmac.digest(key, user_id.encode(), "sha256")
