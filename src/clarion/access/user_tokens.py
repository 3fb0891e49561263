"""User tokens: JWTs that an app signs with the one algorithm registered for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeGuard

import jwt

from clarion.access.model import App, UserCaller
from clarion.access.port import Apps, Vault
from clarion.errors import Unauthenticated
from clarion.fields import check_user_id, is_plain

LEEWAY_S = 30
# How long an app is served from the cache, as long as an API key.
APP_KNOWN_MS = 2_000
_HOUR_S = 3600
_NOT_A_TOKEN = "The bearer token is neither an API key (ck_…) nor a JSON Web Token."  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True)
class UserTokens:
    """Verifies user tokens: `sub` is the user id, `aud` the app id, `exp` the expiry."""

    apps: Apps
    vault: Vault
    max_hours: int = 24
    # By id: when the app was read, and the app.
    _known: dict[str, tuple[int, App]] = field(default_factory=dict, init=False, repr=False)

    async def verify(self, token: str, now: int) -> UserCaller:
        """Return the caller; `Unauthenticated` says what is wrong with the token."""
        app = await self._find_app(_claimed_app(token), now)
        claims = self._decode(token, app)
        expires_at = _check_times(claims, now / 1000, self.max_hours)
        return UserCaller(app_id=app.id, user_id=_user_id(claims), expires_at=expires_at)

    async def _find_app(self, app_id: str, now: int) -> App:
        read_at, app = self._known.get(app_id, (0, None))
        if app is not None and 0 <= now - read_at < APP_KNOWN_MS:
            return app
        app = await self.apps.get(app_id)
        if app is None:
            msg = "The `aud` of the user token is not the id of an app on this server."
            raise Unauthenticated(msg)
        self._known[app_id] = (now, app)  # not more than there are apps: others are not stored
        return app

    def _decode(self, token: str, app: App) -> dict[str, object]:
        key = self.vault.open(app.user_token_key, user_key_context(app.id))
        try:
            claims: dict[str, object] = jwt.decode(
                token,
                key,
                algorithms=[app.user_token_algorithm.value],
                audience=app.id,
                # Times and the user id are checked below: by our clock, with our error texts.
                options={
                    "require": ["sub", "aud", "exp"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                },
            )
        except RecursionError as error:
            raise Unauthenticated(_NOT_A_TOKEN) from error
        except jwt.InvalidTokenError as error:
            raise Unauthenticated(f"The user token is not valid: {_reason(error, app)}.") from error
        return claims


def user_key_context(app_id: str) -> str:
    """Return the context in which the user token key of an app is sealed."""
    return f"apps/{app_id}/user_token_key"


def _claimed_app(token: str) -> str:
    try:
        # Not verified yet: it only says with which key to verify.
        claims = jwt.decode(token, options={"verify_signature": False})
    # JSON that is nested too deeply is no error of the library's own.
    except (jwt.InvalidTokenError, RecursionError) as error:
        raise Unauthenticated(_NOT_A_TOKEN) from error
    audience = claims.get("aud")
    if not isinstance(audience, str) or not is_plain(audience):
        raise Unauthenticated("The `aud` of the user token must be one string: the id of the app.")
    return audience


def _reason(error: jwt.InvalidTokenError, app: App) -> str:
    match error:
        case jwt.InvalidSignatureError():
            return "the signature does not match the app's key"
        case jwt.InvalidAlgorithmError():
            return f"the app's tokens must be signed with {app.user_token_algorithm.value}"
        case jwt.MissingRequiredClaimError():
            return f"`{error.claim}` is missing"
        case _:
            return "it cannot be read"


def _check_times(claims: dict[str, object], now_s: float, max_hours: int) -> int:
    """Return when the token expires, in milliseconds."""
    expires, starts = claims["exp"], claims.get("nbf", 0)
    if not _is_time(expires) or not _is_time(starts):
        raise Unauthenticated("`exp` and `nbf` of the user token must be seconds since 1970.")
    if now_s >= expires + LEEWAY_S:
        raise Unauthenticated("The user token has expired.")
    if now_s < starts - LEEWAY_S:
        raise Unauthenticated("The user token is not valid yet.")
    if expires > now_s + max_hours * _HOUR_S + LEEWAY_S:
        raise Unauthenticated(
            f"The `exp` of the user token must be at most {max_hours} hours ahead "
            "(--user-token-hours). Sign tokens for a shorter time, and sign new ones as needed."
        )
    return int(expires + LEEWAY_S) * 1000


def _is_time(value: object) -> TypeGuard[int | float]:
    # Python reads NaN and Infinity in JSON, and no token may be valid forever.
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _user_id(claims: dict[str, object]) -> str:
    subject = claims["sub"]
    try:
        return check_user_id(subject if isinstance(subject, str) else "")
    except ValueError as error:
        raise Unauthenticated(f"The token's `sub` is not a user id: it {error}.") from error
