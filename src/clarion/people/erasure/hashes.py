"""The keyed hash of a user id: it recognises an erased user, and says nothing to anybody else.

Each app has a key of its own, which is made at its first erasure. It is sealed with the master key
and stays when that is replaced: tombstones are recognised for as long as they are stored.
"""

from __future__ import annotations

import hmac
import secrets

from clarion.people.erasure.sql.hash_keys import HashKeys

_KEY_BYTES = 32


class UserHashes:
    """Computes the hashes. A key never changes, so it is read once."""

    def __init__(self, keys: HashKeys) -> None:
        self._keys = keys
        self._known: dict[str, bytes] = {}  # not more than there are apps

    async def find(self, app_id: str, user_id: str) -> bytes | None:
        """Return the hash of a user id; None if the app has erased nobody yet."""
        key = self._known.get(app_id) or await self._keys.find(app_id)
        return self._hash(app_id, key, user_id) if key else None

    async def make(self, app_id: str, user_id: str, now: int) -> bytes:
        """Return the hash of a user id, with a new key if the app has none."""
        known = self._known.get(app_id) or await self._keys.find(app_id)
        key = known or await self._keys.ensure(app_id, secrets.token_bytes(_KEY_BYTES), now)
        return self._hash(app_id, key, user_id)

    def _hash(self, app_id: str, key: bytes, user_id: str) -> bytes:
        self._known[app_id] = key
        return hmac.digest(key, user_id.encode(), "sha256")
