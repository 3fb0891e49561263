"""Signing in: the password, the second factor, set-up links, and the sessions they lead to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from clarion.access.administrators.attempts import (
    confirmation_counters,
    counted,
    hash_name,
    second_factor_counters,
    sign_in_counters,
)
from clarion.access.administrators.model import (
    FIRST,
    Administrator,
    AdminSession,
    SetupLink,
    TrustedDevice,
    check_username,
    hash_token,
    new_token,
)
from clarion.access.administrators.passwords import HashingThreads, check_password, needs_rehash
from clarion.access.administrators.policy import PENDING_MS, TRUSTED_MS, SignInPolicy
from clarion.access.administrators.second_factor import CodeChecker
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.model import AdminCaller, Role, SignInStage, Visitor
from clarion.audit.model import ActorKind
from clarion.audit.port import AuditLog
from clarion.clock import Clock
from clarion.errors import (
    AddressNotAllowed,
    FieldFault,
    InvalidFields,
    SignInFailed,
    Unauthenticated,
)
from clarion.fields import check_value, is_plain
from clarion.telemetry.logs import get_logger

_USER_AGENT_LENGTH = 200
_WRONG_NAME = "The username or the password is not right."
_WRONG_PASSWORD = "The password is not right."  # noqa: S105 - a sentence
_WRONG_CODE = "The code is not right, or it was used before."
_WRONG_LINK = "This set-up link is no longer valid. `clarion admin reset` creates a new one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A new session, with its secret, and that of a device that is trusted from now on."""

    session: AdminSession
    administrator: Administrator
    stage: SignInStage
    secret: str = field(repr=False)
    device_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SignIn:
    """Everything that starts a session."""

    stores: AdminStores
    codes: CodeChecker
    hashing: HashingThreads
    policy: SignInPolicy
    audit_log: AuditLog
    clock: Clock

    async def by_password(self, username: str, password: str, visitor: Visitor) -> Started:
        """Start a session; `SignInFailed` is the same for a wrong name and a wrong password."""
        self.policy.check(visitor)
        now = self.clock.now()
        # What no store can hold is nobody's name.
        name = username if is_plain(username) else ""
        account = await self.stores.accounts.find(name)
        if account is not None:
            self.audit_log.describe(administrator_id=account.id)
        device = await self._find_device(account, visitor, now)
        known_by = device.token_hash if device else await self._find_past(account, visitor)
        counters = sign_in_counters(username, visitor.address, known_by)
        is_usable = account is not None and account.is_active and account.allows(visitor.address)
        password_hash = account.password_hash if account and is_usable else None
        is_known = known_by is not None
        async with counted(self.stores.attempts, counters, now):
            is_right = await self.hashing.matches(password, password_hash, is_known=is_known)
            if not is_right or account is None:
                get_logger().info("sign_in_failed", account=hash_name(username))
                raise SignInFailed(_WRONG_NAME)
        self.audit_log.identify(ActorKind.ADMINISTRATOR, account.id)
        await self._rehash(account, password)
        return await self._start(account, visitor, now, has_mfa=device is not None)

    async def _find_device(
        self, account: Administrator | None, visitor: Visitor, now: int
    ) -> TrustedDevice | None:
        if visitor.device is None:
            return None
        device = await self.stores.sessions.find_device(hash_token(visitor.device), now)
        is_theirs = device and account and device.administrator_id == account.id
        return device if is_theirs else None

    async def _find_past(self, account: Administrator | None, visitor: Visitor) -> bytes | None:
        """Return the hash of the browser's last session, if it was one of the account.

        It may have expired. One that was ended, for example by a new password, is not found.
        """
        if visitor.session is None:
            return None
        session = await self.stores.sessions.find(hash_token(visitor.session))
        is_theirs = session and account and session.administrator_id == account.id
        return session.secret_hash if session and is_theirs else None

    async def _rehash(self, account: Administrator, password: str) -> None:
        """Replace a hash of bcrypt, or with lower parameters, now that the password is known."""
        before = account.password_hash
        if before and needs_rehash(before):
            after = await self.hashing.hash(password)
            await self.stores.accounts.rehash_password(account.id, before, after)

    async def by_link(
        self, token: str, username: str | None, password: str, visitor: Visitor
    ) -> Started:
        """Use a set-up link: make the first administrator, or set the password of another."""
        self.policy.check(visitor)
        now = self.clock.now()
        link = await self.stores.links.find(hash_token(token), now)
        if link is None:
            raise SignInFailed(_WRONG_LINK)
        self.audit_log.describe(administrator_id=link.id)
        if link.id == FIRST:
            account = await self._make_first(link, username, password, now)
        else:
            account = await self._set_up(link, username, password, visitor)
        return await self._start(account, visitor, now, has_mfa=False)

    async def _make_first(
        self, link: SetupLink, username: str | None, password: str, now: int
    ) -> Administrator:
        name = check_value("username", check_username, username or "")
        account = Administrator(
            id=self.clock.new_id(),
            username=name,
            password_hash=await self._hash_new(password, name),
            role=Role.ADMIN,
            created_at=now,
            password_changed_at=now,
        )
        self.audit_log.identify(ActorKind.ADMINISTRATOR, account.id)
        if not await self.stores.links.use_first(link.token_hash, account, now):
            raise SignInFailed(_WRONG_LINK)
        return account

    async def _set_up(
        self, link: SetupLink, username: str | None, password: str, visitor: Visitor
    ) -> Administrator:
        account = await self.stores.accounts.get(link.id)
        if account is None or not account.is_active:
            raise SignInFailed(_WRONG_LINK)
        if not account.allows(visitor.address):
            raise AddressNotAllowed
        if username not in (None, account.username):
            raise InvalidFields(FieldFault("username", "is not the username for this link"))
        password_hash = await self._hash_new(password, account.username)
        self.audit_log.identify(ActorKind.ADMINISTRATOR, account.id)
        if not await self.stores.links.use(link, password_hash, self.clock.now()):
            raise SignInFailed(_WRONG_LINK)
        return account

    async def by_code(
        self, caller: AdminCaller, code: str, visitor: Visitor, *, trusts_device: bool
    ) -> Started:
        """Finish a sign-in with a TOTP code or recovery code; the session gets a new secret."""
        account, now = await self._account_of(caller), self.clock.now()
        await self._check_code(account.id, code, visitor)
        started = await self._start(account, visitor, now, has_mfa=True)
        if not trusts_device:
            return started
        return await self._trust(started)

    async def _check_code(self, administrator_id: str, code: str, visitor: Visitor) -> None:
        """Use up a code; `SignInFailed` if it is not right or was used before."""
        now = self.clock.now()
        counters = second_factor_counters(administrator_id, visitor.address)
        async with counted(self.stores.attempts, counters, now):
            if not await self.codes.use(administrator_id, code, now):
                get_logger().info("second_factor_failed", administrator_id=administrator_id)
                raise SignInFailed(_WRONG_CODE)

    async def _trust(self, started: Started) -> Started:
        token, now = new_token(), self.clock.now()
        device = TrustedDevice(
            token_hash=hash_token(token),
            administrator_id=started.administrator.id,
            created_at=now,
            expires_at=now + TRUSTED_MS,
        )
        await self.stores.sessions.trust(device)
        return replace(started, device_token=token)

    async def confirm(self, caller: AdminCaller, password: str) -> None:
        """Record that the password was given again; `SignInFailed` if it is not right."""
        await self._check_password(caller, password)
        await self.stores.sessions.confirm(_session_of(caller), self.clock.now())

    async def change_password(
        self, caller: AdminCaller, current: str, password: str, visitor: Visitor
    ) -> Started:
        """Set another password; every other session and trusted device ends, this one is new."""
        account = await self._check_password(caller, current)
        password_hash = await self._hash_new(password, account.username)
        now, session_id = self.clock.now(), _session_of(caller)
        await self.stores.accounts.set_password(
            account.id, password_hash, now, keep_session=session_id
        )
        get_logger().info("password_changed", administrator_id=account.id)
        return await self.renew(caller, visitor, has_mfa=caller.has_mfa)

    async def renew(self, caller: AdminCaller, visitor: Visitor, *, has_mfa: bool) -> Started:
        """Replace the session by a new one."""
        account = await self._account_of(caller)
        return await self._start(account, visitor, self.clock.now(), has_mfa=has_mfa)

    async def _check_password(self, caller: AdminCaller, password: str) -> Administrator:
        account = await self._account_of(caller)
        counters = confirmation_counters(_session_of(caller))
        async with counted(self.stores.attempts, counters, self.clock.now()):
            if not await self.hashing.matches(password, account.password_hash):
                raise SignInFailed(_WRONG_PASSWORD)
        return account

    async def _account_of(self, caller: AdminCaller) -> Administrator:
        account = await self.stores.accounts.get(caller.administrator_id)
        if account is None:
            raise Unauthenticated
        return account

    async def _hash_new(self, password: str, username: str) -> str:
        checked = check_value("password", partial(check_password, username=username), password)
        return await self.hashing.hash(checked)

    async def _start(
        self, account: Administrator, visitor: Visitor, now: int, *, has_mfa: bool
    ) -> Started:
        """Start a session, which replaces the browser's previous one.

        It begins with its request, so that audit entries of older sign-ins are earlier.
        """
        has_totp = not has_mfa and await self.stores.factors.find_totp(account.id) is not None
        stage = self.policy.stage_of(account, has_totp=has_totp, has_mfa=has_mfa)
        self.audit_log.describe(stage=stage.value)
        secret = new_token()
        lasts_ms = self.policy.session_ms if stage is SignInStage.SIGNED_IN else PENDING_MS
        session = AdminSession(
            id=self.clock.new_id(),
            administrator_id=account.id,
            secret_hash=hash_token(secret),
            created_at=now,
            last_seen_at=now,
            expires_at=now + lasts_ms,
            mfa_at=now if has_mfa else None,
            confirmed_at=now,
            address=visitor.address,
            user_agent=_show(visitor.user_agent),
        )
        previous = hash_token(visitor.session) if visitor.session else None
        await self.stores.sessions.start(session, instead_of=previous)
        get_logger().info("signed_in", administrator_id=account.id, stage=stage.value)
        return Started(session=session, administrator=account, stage=stage, secret=secret)


def _session_of(caller: AdminCaller) -> str:
    if caller.session_id is None:
        raise Unauthenticated
    return caller.session_id


def _show(user_agent: str) -> str:
    return user_agent[:_USER_AGENT_LENGTH] if is_plain(user_agent) else ""
