"""Identifies administrators: the secret of a session, or an admin API key → caller."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clarion.access.administrators.keys import PREFIX
from clarion.access.administrators.model import Administrator, AdminKey, hash_token
from clarion.access.administrators.policy import SignInPolicy
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.keys import parse_api_secret
from clarion.access.model import AdminCaller, AdminCredential, Role
from clarion.access.sql import Apps
from clarion.clock import Clock
from clarion.errors import AddressNotAllowed, NotFound, Unauthenticated

# The last use of a session or key is recorded at most this often.
TOUCHED_MS = 60_000
_SESSION_ENDED = "This session has ended. Sign in again."
_KEY_NOT_VALID = "This admin API key is not valid."


@dataclass(frozen=True, slots=True)
class AdminAuthenticator:
    """Identifies administrators by a session or by an admin API key.

    It reads the session and the account for every request, so what ends on one node has ended on
    all of them. Requests of administrators are few.
    """

    stores: AdminStores
    apps: Apps
    policy: SignInPolicy
    clock: Clock

    async def identify(self, credential: AdminCredential, *, is_use: bool = True) -> AdminCaller:
        """Return the administrator.

        Unless `is_use` is false, the time of the use is recorded: a session ends when it is not
        used.

        `Unauthenticated` if the session or key is not valid any more, `AddressNotAllowed` if it
        must not be used from this address, `InsecureTransport` if others could read it on the way,
        and `NotFound` if there is no such app, or no role for it.
        """
        self.policy.check(credential.visitor)
        now = self.clock.now()
        if credential.is_key:
            caller = await self._by_key(credential, now, is_use=is_use)
        else:
            caller = await self._by_session(credential, now, is_use=is_use)
        if credential.app_id is None:
            return caller
        await self._check_app(caller, credential.app_id)
        return replace(caller, app_id=credential.app_id)

    async def _check_app(self, caller: AdminCaller, app_id: str) -> None:
        if caller.role_for(app_id) is None or await self.apps.get(app_id) is None:
            raise NotFound(f"There is no app {app_id!r}.")

    async def _by_session(
        self, credential: AdminCredential, now: int, *, is_use: bool
    ) -> AdminCaller:
        session = await self.stores.sessions.find(hash_token(credential.secret))
        if session is None or not self.policy.is_live(session, now):
            raise Unauthenticated(_SESSION_ENDED)
        account = await self._find_account(session.administrator_id, credential, _SESSION_ENDED)
        has_mfa = session.mfa_at is not None
        has_totp = not has_mfa and await self.stores.factors.find_totp(account.id) is not None
        if is_use and now - session.last_seen_at >= TOUCHED_MS:
            await self.stores.sessions.touch(session.id, now)
        return AdminCaller(
            administrator_id=account.id,
            username=account.username,
            role=account.role,
            app_roles=account.app_roles,
            session_id=session.id,
            stage=self.policy.stage_of(account, has_totp=has_totp, has_mfa=has_mfa),
            has_mfa=has_mfa,
            confirmed_at=session.confirmed_at,
            expires_at=session.expires_at,
        )

    async def _by_key(self, credential: AdminCredential, now: int, *, is_use: bool) -> AdminCaller:
        secret = parse_api_secret(credential.secret, PREFIX)
        key = await self.stores.keys.find(secret.id) if secret else None
        if secret is None or key is None or not secret.matches(key.secret_hash):
            raise Unauthenticated(_KEY_NOT_VALID)
        if not key.is_live(now):
            raise Unauthenticated("This admin API key was revoked or has expired.")
        account = await self._find_account(key.administrator_id, credential, _KEY_NOT_VALID)
        if is_use and (key.last_used_at is None or now - key.last_used_at >= TOUCHED_MS):
            await self.stores.keys.touch(key.id, now)
        return AdminCaller(
            administrator_id=account.id,
            username=account.username,
            role=_limit(account.role, key),
            app_roles={app_id: _least(role, key) for app_id, role in account.app_roles.items()},
            key_id=key.id,
            expires_at=key.expires_at,
        )

    async def _find_account(
        self, administrator_id: str, credential: AdminCredential, refusal: str
    ) -> Administrator:
        account = await self.stores.accounts.get(administrator_id)
        if account is None or not account.is_active:
            raise Unauthenticated(refusal)
        if not account.allows(credential.visitor.address):
            raise AddressNotAllowed
        return account


def _limit(role: Role | None, key: AdminKey) -> Role | None:
    return None if role is None else _least(role, key)


def _least(role: Role, key: AdminKey) -> Role:
    return min(role, key.role, key=lambda each: each.rank)
