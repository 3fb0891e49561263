"""How many requests a caller may make in a minute: its own, and its part of its app's."""

from __future__ import annotations

from clarion.access.model import AdminCaller, AppCaller, Caller
from clarion.clock import Clock
from clarion.errors import TooManyRequests
from clarion.http.asgi import Headers, identity_of
from clarion.nodes.port import Limits, Quota
from clarion.settings import Settings

_WINDOW_S = 60
_SIGN_INS_PER_MINUTE = 120
# Users get at most this part of their app's requests: the rest is reserved for its own servers.
_USERS_PART = 0.75
# Callers whose quotas are kept.
_KEPT_LIMIT = 10_000


class RequestQuotas:
    """Counts requests, and adds the remaining quota to the headers of the response.

    Raises `TooManyRequests` for a request beyond it.
    """

    def __init__(self, limits: Limits, clock: Clock, settings: Settings) -> None:
        self._limits = limits
        self._clock = clock
        self._settings = settings
        self._of_callers: dict[str, tuple[Quota, ...]] = {}

    async def count(self, caller: Caller, extra: Headers) -> None:
        await self._take(caller, self._find(caller), extra)

    async def count_sign_in(self, address: str, extra: Headers) -> None:
        """Count an attempt by its address; those of unknown ones are counted by account alone."""
        if not address:
            extra.append((b"cache-control", b"no-store"))
            return
        await self._take(None, (Quota(f"sign_in:{address}", _SIGN_INS_PER_MINUTE),), extra)

    async def _take(self, caller: Caller | None, quotas: tuple[Quota, ...], extra: Headers) -> None:
        position, allowance = await self._limits.take_all(
            quotas, window_s=_WINDOW_S, now=self._clock.now()
        )
        extra += (
            (b"ratelimit-limit", b"%d" % allowance.limit),
            (b"ratelimit-remaining", b"%d" % allowance.remaining),
            (b"ratelimit-reset", b"%d" % allowance.reset_s),
            (b"cache-control", b"no-store"),
        )
        if allowance.is_exceeded:
            raise TooManyRequests(allowance.reset_s, _explain_limit(caller, position))

    def _find(self, caller: Caller) -> tuple[Quota, ...]:
        """Return the quotas of a caller, which depend on the settings alone."""
        who = identity_of(caller)
        quotas = self._of_callers.get(who)
        if quotas is None:
            if len(self._of_callers) >= _KEPT_LIMIT:
                self._of_callers.clear()
            quotas = self._of_callers[who] = self._list(caller)
        return quotas

    def _list(self, caller: Caller) -> tuple[Quota, ...]:
        """Return the caller's own quota, then the part of its app's that it may use up.

        Administrators are not counted against an app: they must be able to inspect an app that has
        used up its quota.
        """
        settings = self._settings
        if isinstance(caller, AdminCaller):
            return (Quota(identity_of(caller), settings.admin_requests_per_minute),)
        per_app = settings.app_requests_per_minute
        if isinstance(caller, AppCaller):
            own = Quota(identity_of(caller), settings.requests_per_minute)
            return own, Quota(caller.app_id, per_app)
        own = Quota(identity_of(caller), settings.user_requests_per_minute)
        return own, Quota(caller.app_id, max(1, int(per_app * _USERS_PART)))


def _explain_limit(caller: Caller | None, position: int) -> str:
    if position > 0:
        return "This app has used up its requests for this minute; wait as `Retry-After` says."
    names = {AppCaller: "API key", AdminCaller: "administrator", type(None): "address"}
    who = names.get(type(caller), "user")
    return f"This {who} has used up its requests for this minute; wait as `Retry-After` says."
