"""User tokens: JWTs that an app signs with one of its keys, each for one algorithm."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeGuard

import jwt

from clarion.access.known_apps import KnownApp, KnownApps, VerifyingKey
from clarion.access.model import UserCaller
from clarion.errors import Unauthenticated, count
from clarion.fields import check_user_id, is_plain

LEEWAY_S = 30
# The most keys of an app that are tried with a token that names none.
TRIES_LIMIT = 5
# The newest tokens are kept, unless they are longer than this: 20 MiB at most.
CACHED_TOKENS = 10_000
CACHED_LENGTH = 1_024
_TYPES = frozenset({"jwt", "at+jwt"})
_HOUR_S = 3600
_NOT_A_TOKEN = "The bearer token is neither an API key (ck_…) nor a JSON Web Token."  # noqa: S105 - a sentence


class _Signed(NamedTuple):
    """The claims of a token, and the key of the app that has signed them."""

    app_id: str
    kid: str
    key: VerifyingKey
    claims: dict[str, object]


@dataclass(frozen=True, slots=True)
class UserTokens:
    """Verifies user tokens: `sub` is the user id, `aud` the app id, `exp` the expiry.

    A signature is verified once. What can change is checked each time: the times of the token, and
    that its key is still a live one of the app.
    """

    apps: KnownApps
    max_hours: int = 24
    # Tokens that were signed by a key of their app: nobody else can add one.
    _signed: OrderedDict[str, _Signed] = field(default_factory=OrderedDict, init=False, repr=False)

    async def verify(self, token: str, now: int) -> UserCaller:
        """Return the caller; `Unauthenticated` says what is wrong with the token."""
        signed = self._signed.get(token)
        if signed is None or not await self._is_live(signed, now):
            signed = await self._verify(token, now)
        expires_at = _check_times(signed.claims, now / 1000, self.max_hours)
        user_id = _user_id(signed.claims)
        return UserCaller(app_id=signed.app_id, user_id=user_id, expires_at=expires_at)

    async def _is_live(self, signed: _Signed, now: int) -> bool:
        """Whether the key that has signed a token is a key of the app still."""
        known = await self.apps.find(signed.app_id, now)
        return known is not None and known.keys.get(signed.kid) == signed.key

    async def _verify(self, token: str, now: int) -> _Signed:
        self._signed.pop(token, None)
        header, app_id = _peek(token)
        known = await self.apps.find(app_id, now)
        if known is None:
            msg = "The `aud` of the user token is not the id of an app on this server."
            raise Unauthenticated(msg)
        signed = _decode(token, app_id, _choose_keys(known, header))
        if len(token) <= CACHED_LENGTH:
            if len(self._signed) >= CACHED_TOKENS:
                self._signed.popitem(last=False)
            self._signed[token] = signed
        return signed


def _peek(token: str) -> tuple[Mapping[str, Any], str]:
    """Return the header, and the app whose keys the token is to be verified with.

    Nothing of it is verified yet. Keys and addresses of keys in the header (`jwk`, `jku`, `x5u`)
    are ignored.
    """
    try:
        decoded = jwt.decode_complete(token, options={"verify_signature": False})
    # JSON that is nested too deeply is no error of the library's own.
    except (jwt.InvalidTokenError, RecursionError) as error:
        raise Unauthenticated(_NOT_A_TOKEN) from error
    header, audience = decoded["header"], decoded["payload"].get("aud")
    if "crit" in header:
        raise Unauthenticated("The user token has a `crit` header, which is not supported.")
    if str(header.get("typ", "JWT")).lower() not in _TYPES:
        raise Unauthenticated("The `typ` of the user token must be JWT.")
    if not isinstance(audience, str) or not is_plain(audience):
        raise Unauthenticated("The `aud` of the user token must be one string: the id of the app.")
    return header, audience


def _choose_keys(known: KnownApp, header: Mapping[str, Any]) -> list[tuple[str, VerifyingKey]]:
    """Return the keys to verify a token with: that of its `kid`, or those of its algorithm."""
    algorithm, kid = header.get("alg"), header.get("kid")
    if kid is None:
        fitting = (each for each in known.keys.items() if each[1].algorithm.value == algorithm)
        keys = list(islice(fitting, TRIES_LIMIT))
    else:
        # The app's keys are in memory: no kid reaches the database or a file.
        key = known.keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise Unauthenticated("The `kid` of the user token is not that of a key of the app.")
        keys = [(kid, key)] if key.algorithm.value == algorithm else []
    if not keys:
        raise Unauthenticated(f"The user token is not valid: {_explain_algorithm(known, kid)}.")
    return keys


def _explain_algorithm(known: KnownApp, kid: str | None) -> str:
    keys = known.keys.values() if kid is None else [known.keys[kid]]
    names = sorted({each.algorithm.value for each in keys})
    if not names:
        return "the app has no key for user tokens"
    return f"it must be signed with {' or '.join(names)}"


def _decode(token: str, app_id: str, keys: list[tuple[str, VerifyingKey]]) -> _Signed:
    """Return the claims by the first key that has signed them."""
    for kid, key in keys:
        try:
            return _Signed(app_id, kid, key, _verify(token, app_id, key))
        except jwt.InvalidSignatureError:
            continue
        except RecursionError as error:
            raise Unauthenticated(_NOT_A_TOKEN) from error
        except jwt.MissingRequiredClaimError as error:
            msg = f"The user token is not valid: `{error.claim}` is missing."
            raise Unauthenticated(msg) from error
        except jwt.InvalidTokenError as error:
            raise Unauthenticated("The user token is not valid: it cannot be read.") from error
    msg = "The user token is not valid: the signature does not match a key of the app."
    raise Unauthenticated(msg)


def _verify(token: str, app_id: str, key: VerifyingKey) -> dict[str, object]:
    claims: dict[str, object] = jwt.decode(
        token,
        key.key,
        algorithms=[key.algorithm.value],
        audience=app_id,
        # Times and the user id are checked by our clock, with our error texts.
        options={
            "require": ["sub", "aud", "exp"],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
            "verify_sub": False,
        },
    )
    return claims


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
            f"The `exp` of the user token must be at most {count(max_hours, 'hour')} ahead "
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
