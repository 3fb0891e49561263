"""Signs user tokens with an app's own secret, to try things out."""

from __future__ import annotations

from dataclasses import dataclass

import jwt

from clarion.access.app_keys import user_key_context
from clarion.access.model import UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys
from clarion.access.vault import Vault
from clarion.clock import Clock


@dataclass(frozen=True, slots=True)
class UserTokenSigner:
    """Signs as the app's server would."""

    user_keys: AppKeys[UserKey]
    vault: Vault
    clock: Clock

    async def sign(self, app_id: str, user_id: str, *, lasts_s: int) -> tuple[str, int] | None:
        """Return a token and when it expires, in seconds; None if no live secret can sign it."""
        now = self.clock.now()
        expires_s = now // 1000 + lasts_s
        for key in await self.user_keys.list(app_id):
            if key.algorithm is UserTokenAlgorithm.HS256 and key.is_live(now):
                secret = self.vault.open(key.key, user_key_context(app_id, key.kid))
                claims = {"sub": user_id, "aud": app_id, "exp": expires_s}
                token = jwt.encode(claims, secret, algorithm="HS256", headers={"kid": key.kid})
                return token, expires_s
        return None
