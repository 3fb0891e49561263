"""The user keys and provider keys of apps: new ones are proposed, then stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from clarion.access.app_keys import (
    IssuedProviderKey,
    IssuedUserKey,
    check_overlap,
    issue_provider_key,
    issue_user_key,
)
from clarion.access.known_apps import KnownApps
from clarion.access.model import LIVE_KEYS_LIMIT, App, ProviderKey, UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys, Apps
from clarion.access.vault import Vault
from clarion.audit.port import AuditLog
from clarion.clock import Clock
from clarion.errors import Conflict, existing
from clarion.idempotency.model import IdempotencyClaim, StoredResponse

K = TypeVar("K", UserKey, ProviderKey)


@dataclass(slots=True, kw_only=True)
class Keyring:
    """The keys of apps, for administrators and commands.

    `NotFound` if there is no such app or live key, `Conflict` if a name is taken or the app has the
    most keys that it may have, `InvalidFields` if a new key is not valid.
    """

    apps: Apps
    user_keys: AppKeys[UserKey]
    provider_keys: AppKeys[ProviderKey]
    known_apps: KnownApps
    vault: Vault
    clock: Clock
    audit_log: AuditLog
    # Called with the id of a provider key that was replaced or revoked.
    on_provider_key_changed: Callable[[str], None] = lambda _key_id: None

    async def find_app(self, app_id: str) -> App:
        return existing(await self.apps.get(app_id), f"There is no app {app_id!r}.")

    async def list_user_keys(self, app_id: str) -> tuple[UserKey, ...]:
        return await self.user_keys.list((await self.find_app(app_id)).id)

    async def list_provider_keys(self, app_id: str) -> tuple[ProviderKey, ...]:
        return await self.provider_keys.list((await self.find_app(app_id)).id)

    async def propose_user_key(
        self,
        app_id: str,
        *,
        algorithm: UserTokenAlgorithm,
        kid: str | None = None,
        secret: str | None = None,
        public_key: str | None = None,
        expires_at: int | None = None,
    ) -> IssuedUserKey:
        """Return a new key, without storing it."""
        app = await self.find_app(app_id)
        return issue_user_key(
            app_id=app.id,
            algorithm=algorithm,
            vault=self.vault,
            now=self.clock.now(),
            kid=kid,
            secret=secret,
            public_key=public_key,
            expires_at=expires_at,
        )

    async def propose_provider_key(
        self,
        app_id: str,
        *,
        key_id: str | None = None,
        public_key: str | None = None,
        expires_at: int | None = None,
    ) -> IssuedProviderKey:
        """Return a new key, without storing it."""
        return issue_provider_key(
            app=await self.find_app(app_id),
            now=self.clock.now(),
            key_id=key_id,
            public_key=public_key,
            expires_at=expires_at,
        )

    async def find_user_key(self, app_id: str, kid: str) -> UserKey:
        """Return a live key."""
        return self._find(await self.list_user_keys(app_id), kid)

    async def find_provider_key(self, app_id: str, key_id: str) -> ProviderKey:
        """Return a live key."""
        return self._find(await self.list_provider_keys(app_id), key_id)

    async def add_user_key(
        self, key: UserKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        self.audit_log.describe(app_id=key.app_id, kid=key.kid, algorithm=key.algorithm.value)
        done = await self.user_keys.add(key, self.clock.now(), once)
        self.known_apps.forget(key.app_id)
        return _check_added(done)

    async def add_provider_key(
        self, key: ProviderKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        self.audit_log.describe(app_id=key.app_id, key_id=key.key_id)
        return _check_added(await self.provider_keys.add(key, self.clock.now(), once))

    async def rotate_user_key(
        self, kid: str, new: UserKey, overlap_s: int, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store a key in place of another, which stays valid for `overlap_s` seconds."""
        now, overlap = self.clock.now(), check_overlap(overlap_s)
        self.audit_log.describe(app_id=new.app_id, kid=kid, new_kid=new.kid)
        done = await self.user_keys.rotate(kid, new, now=now, ends_at=now + overlap, once=once)
        self.known_apps.forget(new.app_id)
        return _check_added(done)

    async def rotate_provider_key(
        self, key_id: str, new: ProviderKey, overlap_s: int, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store a key in place of another, which stays valid for `overlap_s` seconds."""
        now = self.clock.now()
        ends_at = now + check_overlap(overlap_s)
        self.audit_log.describe(app_id=new.app_id, key_id=key_id, new_key_id=new.key_id)
        done = await self.provider_keys.rotate(key_id, new, now=now, ends_at=ends_at, once=once)
        self.on_provider_key_changed(key_id)
        return _check_added(done)

    async def revoke_user_key(self, app_id: str, kid: str) -> UserKey:
        self.audit_log.describe(app_id=app_id, kid=kid)
        revoked = await self.user_keys.revoke(app_id, kid, self.clock.now())
        self.known_apps.forget(app_id)
        return existing(revoked, _explain_missing(kid))

    async def revoke_provider_key(self, app_id: str, key_id: str) -> ProviderKey:
        self.audit_log.describe(app_id=app_id, key_id=key_id)
        revoked = await self.provider_keys.revoke(app_id, key_id, self.clock.now())
        self.on_provider_key_changed(key_id)
        return existing(revoked, _explain_missing(key_id))

    def _find(self, keys: tuple[K, ...], name: str) -> K:
        now = self.clock.now()
        live = (each for each in keys if each.name == name and each.is_live(now))
        return existing(next(live, None), _explain_missing(name))


def _explain_missing(name: str) -> str:
    return f"This app has no live key {name!r}."


def _check_added(done: StoredResponse | bool) -> StoredResponse | None:  # noqa: FBT001 - an outcome
    if isinstance(done, StoredResponse):
        return done
    if not done:
        raise Conflict(f"An app can have {LIVE_KEYS_LIMIT} live keys. Revoke one of them first.")
    return None
