"""Verifies the senders to an endpoint: VAPID (RFC 8292), verified once and then cached.

`vapid t=…, k=…` is the form of the RFC; `WebPush …` with `Crypto-Key: p256ecdsa=…` that of drafts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import jwt
from jwt.types import Options

from clarion.errors import Forbidden
from clarion.push.model.vapid import origin_of, read_public_key, write_public_key

LIFE_S = 24 * 3600
# How far the clock of a sender may be ahead or behind.
SKEW_S = 60
VERIFIED_LIMIT = 20_000
# JSON may have any number, or NaN, which is neither earlier nor later than now.
_LATEST_S = 10**12
# `exp` and `aud` are checked here, by our own clock; the other claims do not matter.
_SIGNATURE_ONLY: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class VapidSignatures:
    """The keys with which requests to this service are signed."""

    def __init__(self, public_url: str, verified_limit: int = VERIFIED_LIMIT) -> None:
        self._audience = origin_of(public_url)
        self._limit = verified_limit
        # By the hash of both headers: the key, and when the token expires, in seconds.
        self._verified: dict[bytes, tuple[str, float]] = {}

    def identify(self, authorization: str, crypto_key: str, now: int) -> str | None:
        """Return the public key that signed a request, or None if it is not signed.

        `Forbidden` if the signature is not valid, or not for this service and time.
        """
        given = hashlib.sha256(f"{authorization}\n{crypto_key}".encode()).digest()
        verified = self._verified.get(given)
        if verified is None:
            token, key = _read(authorization, crypto_key)
            if token is None:
                return None
            verified = self._verify(token, key)
            if len(self._verified) >= self._limit:
                self._verified.clear()
            self._verified[given] = verified
        key, expires_at = verified
        left_s = expires_at - now / 1000
        if left_s < -SKEW_S:
            raise Forbidden("The VAPID token has expired.")
        if left_s > LIFE_S + SKEW_S:
            raise Forbidden("The `exp` of the VAPID token must be at most 24 hours ahead.")
        return key

    def _verify(self, token: str, key: str) -> tuple[str, float]:
        try:
            public_key = read_public_key(key)
        except ValueError as error:
            raise Forbidden(f"The key `k` of the VAPID header {error}.") from error
        try:
            claims = jwt.decode(token, public_key, algorithms=["ES256"], options=_SIGNATURE_ONLY)
        # JSON that is nested too deeply is no error of the decoder's own.
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise Forbidden("The VAPID token is not valid, or not signed by its key.") from error
        expires_at, audience = claims.get("exp"), claims.get("aud")
        if not isinstance(expires_at, int | float) or not 0 <= expires_at < _LATEST_S:
            raise Forbidden("The VAPID token must have an `exp`: a number of seconds.")
        if self._audience not in (audience if isinstance(audience, list) else [audience]):
            raise Forbidden(f"The `aud` of the VAPID token must be {self._audience}.")
        return write_public_key(public_key), expires_at


def _read(authorization: str, crypto_key: str) -> tuple[str | None, str]:
    """Return the token and the key; no token if the header is of another kind."""
    scheme, _, rest = authorization.strip().partition(" ")
    match scheme.lower():
        case "vapid":
            given = dict(_parameters(rest))
            return given.get("t", ""), given.get("k", "")
        case "webpush":
            return rest.strip(), dict(_parameters(crypto_key)).get("p256ecdsa", "")
        case _:
            return None, ""


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values; `;` is used like `,`."""
    for part in text.replace(";", ",").split(","):
        name, _, value = part.partition("=")
        yield name.strip().lower(), value.strip().strip('"')


def read_parameter(text: str, name: str) -> str | None:
    """Return one parameter of a header, or None."""
    return dict(_parameters(text)).get(name)
