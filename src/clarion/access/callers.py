"""Authenticates requests: credential → caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from clarion.access.keys import PREFIX, parse_api_secret
from clarion.access.model import ApiKey, AppCaller, Caller, UserCaller
from clarion.access.sql import Keys, Tickets
from clarion.access.tickets import hash_ticket
from clarion.access.user_tokens import UserTokens
from clarion.clock import Clock
from clarion.errors import Unauthenticated
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation

# How long a key is served from the cache. A revoked key is refused at once by the node that revoked
# it, and by others when the bus brings the change; after this at the latest, also if a command
# revoked it.
CACHED_MS = 2_000
CACHED_KEYS = 10_000
# Returns whether a user, given as app and user id, may use a token.
IsActive = Callable[[str, str], Awaitable[bool]]
# Records that a user, given likewise, has used a token.
OnSeen = Callable[[str, str], None]


class Callers:
    """The `Authenticator` port: identifies callers by API key, user token or ticket."""

    def __init__(
        self,
        keys: Keys,
        user_tokens: UserTokens,
        clock: Clock,
        *,
        tickets: Tickets,
        is_active: IsActive,
        on_seen: OnSeen = lambda _app_id, _user_id: None,
        foreign_keys: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._keys = keys
        self._user_tokens = user_tokens
        self._tickets = tickets
        self._clock = clock
        self._is_active = is_active
        self._on_seen = on_seen
        self.forget = Invalidation("access.api_key", self._forget, self._forget_all)
        # API keys of other databases, with the names of these.
        self._foreign_keys = foreign_keys
        self._cache = NodeCache[str, ApiKey | None](CACHED_MS, CACHED_KEYS)
        # By the header, from when its key was looked up. To verify a secret again for each request
        # takes longer than all else that is done for it here.
        self._verified = NodeCache[str, AppCaller](CACHED_MS, CACHED_KEYS)
        # The keys that were used since this was last recorded: not more than are cached.
        self.used: set[str] = set()

    async def identify(self, authorization: str | None) -> Caller:
        if not authorization:
            raise Unauthenticated
        now = self._clock.now()
        if known := self._verified.get(authorization, now):
            app = known[1]
            if app.expires_at is None or now < app.expires_at:
                self.used.add(app.key_id)
                return app
        since = self._verified.changes.count
        caller = await self._identify(authorization)
        if isinstance(caller, AppCaller):
            self._remember(authorization, caller, since)
        return caller

    async def redeem(self, ticket: str) -> UserCaller:
        now = self._clock.now()
        found = await self._tickets.redeem(hash_ticket(ticket), now)
        ends = found.token_expires_at if found else None
        if found is None or (ends is not None and now >= ends):
            raise Unauthenticated("This ticket is not valid: it is unknown, used, or has expired.")
        caller = UserCaller(app_id=found.app_id, user_id=found.user_id, expires_at=ends)
        return await self._check_active(caller)

    def _remember(self, authorization: str, caller: AppCaller, since: int) -> None:
        if len(self.used) >= CACHED_KEYS:
            self.used.clear()
        self.used.add(caller.key_id)
        if known := self._cache.get(caller.key_id, self._clock.now()):
            self._verified.put(authorization, caller, known[0], since)

    async def _identify(self, authorization: str) -> Caller:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "bearer" or not credential:
            raise Unauthenticated(
                "The Authorization header must be `Bearer`, a space, and an API key or user token."
            )
        if credential.startswith(PREFIX):
            return await self._by_key(credential)
        caller = await self._user_tokens.verify(credential, self._clock.now())
        return await self._check_active(caller)

    def _forget(self, key_id: str) -> None:
        self._cache.forget(key_id)
        self._verified.forget_all()

    def _forget_all(self) -> None:
        self._cache.forget_all()
        self._verified.forget_all()

    def forget_app(self, app_id: str) -> None:
        """Remove the keys of an app from the cache of this node."""
        self._cache.forget_where(lambda _, key: key is not None and key.app_id == app_id)
        self._verified.forget_where(lambda _, caller: caller.app_id == app_id)

    async def _check_active(self, caller: UserCaller) -> UserCaller:
        if not await self._is_active(caller.app_id, caller.user_id):
            raise Unauthenticated("The user of this token is inactive.")
        self._on_seen(caller.app_id, caller.user_id)
        return caller

    async def _by_key(self, credential: str) -> AppCaller:
        secret, now = parse_api_secret(credential), self._clock.now()
        key = await self._cache.find(secret.id, now, self._keys.find) if secret else None
        if secret is None or key is None or not secret.matches(key.secret_hash):
            raise self._explain_unknown(credential)
        if not key.is_live(now):
            raise Unauthenticated("This API key was revoked or has expired.")
        return AppCaller(
            app_id=key.app_id, key_id=key.id, scopes=key.scopes, expires_at=key.expires_at
        )

    def _explain_unknown(self, credential: str) -> Unauthenticated:
        if database := self._foreign_keys.get(credential):
            return Unauthenticated(
                f"This API key is for {database}, and this server uses another database."
            )
        return Unauthenticated("This API key is not valid.")
