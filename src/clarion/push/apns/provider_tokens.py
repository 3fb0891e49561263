"""Identifies providers by their tokens: verified once, then cached by the exact header.

A token is a JWT signed with ES256. Some clients sign as JOSE asks (64 raw bytes), some send ASN.1;
some send `iat` as a fraction. All of these are accepted, as Apple does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Container
from dataclasses import dataclass
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from clarion.access.model import App, ProviderKey
from clarion.access.port import Apps
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from clarion.push.apns.reasons import Reason, Rejected

TOKEN_LIFE_MS = 3600 * 1000
# How long a verified token is cached. A revoked key is refused when the bus brings that, and at the
# latest after this, also if a command revoked it.
VERIFIED_MS = 5_000
UPDATE_INTERVAL_MS = 20 * 60 * 1000
# Addresses are used again: after this long without a push it is a new connection.
CONNECTION_IDLE_MS = 60_000
TOKENS_LIMIT = 20_000
CONNECTIONS_LIMIT = 50_000
_RAW_SIGNATURE_BYTES = 64
_ALGORITHM = ec.ECDSA(hashes.SHA256())


class _Header(msgspec.Struct):
    alg: str
    kid: str


class _Claims(msgspec.Struct):
    iss: str
    # Bounded, so that milliseconds fit: a JSON number may also be 1e306.
    iat: Annotated[float, msgspec.Meta(ge=0, le=10**12)]


@dataclass(frozen=True, slots=True)
class Provider:
    """Who sends a push: an app, by one of its provider keys."""

    app: App
    key_id: str
    team_id: str
    issued_at: int


@dataclass(slots=True)
class _Connection:
    provider: Provider
    token: str
    changed_at: int | None
    used_at: int


class ProviderTokens:
    """Identifies providers by the `authorization` header."""

    def __init__(self, apps: Apps, deleted_apps: Container[str] = ()) -> None:
        self._apps = apps
        self._deleted_apps = deleted_apps
        # By the whole header: the provider and the token.
        self._verified = NodeCache[bytes | None, tuple[Provider, str]](VERIFIED_MS, TOKENS_LIMIT)
        # Has the tokens of a provider key verified again, on every node. There are few changes: all
        # tokens are dropped.
        forget_all = self._verified.forget_all
        self.forget = Invalidation("access.provider_key", lambda _key_id: forget_all(), forget_all)
        self._connections: dict[object, _Connection] = {}

    def find_known(
        self, authorization: bytes | None, connection: object, now: int
    ) -> Provider | None:
        """Return the provider of a token that was verified a moment ago, or None: `identify` it.

        Not async, because nearly every push has such a token.
        """
        cached = self._verified.get(authorization, now)
        if cached is None:
            return None
        provider, token = cached[1]
        return self._admit(provider, token, connection, now)

    async def identify(self, authorization: bytes | None, connection: object, now: int) -> Provider:
        """Return the provider; `Rejected` if the token is not valid.

        A connection is not its address and port: another may have them a moment later.
        """
        known = self.find_known(authorization, connection, now)
        if known is not None:
            return known
        token, since = _bearer(authorization), self._verified.changes.count
        provider = await self._verify(token, now)
        self._verified.put(authorization, (provider, token), now, since)
        return self._admit(provider, token, connection, now)

    def _admit(self, provider: Provider, token: str, connection: object, now: int) -> Provider:
        if provider.app.id in self._deleted_apps:
            raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
        _check_age(provider, now)
        self._check_connection(connection, provider, token, now)
        return provider

    async def _verify(self, token: str, now: int) -> Provider:
        header, claims, signed, signature = _parse(token)
        key = await self._apps.find_provider_key(header.kid)
        if key is None or not key.is_live(now) or claims.iss != key.team_id:
            raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
        _check_signature(key, signed, signature)
        app = await self._apps.get(key.app_id)
        if app is None:
            raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
        return Provider(app, key.key_id, key.team_id, int(claims.iat * 1000))

    def _check_connection(
        self, connection: object, provider: Provider, token: str, now: int
    ) -> None:
        """Allow a connection one team, and one new token in 20 minutes."""
        state = self._connections.get(connection)
        if state is None or now - state.used_at > CONNECTION_IDLE_MS:
            if len(self._connections) >= CONNECTIONS_LIMIT:
                self._connections.clear()
            self._connections[connection] = _Connection(provider, token, None, now)
            return
        state.used_at = now
        if token == state.token:
            return
        if provider.team_id != state.provider.team_id:
            raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
        if provider.app.id != state.provider.app.id:
            raise Rejected(Reason.UNRELATED_KEY_ID_IN_TOKEN)
        if state.changed_at is not None and now - state.changed_at < UPDATE_INTERVAL_MS:
            raise Rejected(Reason.TOO_MANY_PROVIDER_TOKEN_UPDATES)
        state.token, state.changed_at = token, now


def _bearer(authorization: bytes | None) -> str:
    scheme, _, token = (authorization or b"").decode("latin-1").partition(" ")
    if not token.strip():
        raise Rejected(Reason.MISSING_PROVIDER_TOKEN)
    if scheme.lower() != "bearer":
        raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
    return token.strip()


def _parse(token: str) -> tuple[_Header, _Claims, bytes, bytes]:
    try:
        head, body, tail = token.split(".")
        header = msgspec.json.decode(_unpad(head), type=_Header)
        claims = msgspec.json.decode(_unpad(body), type=_Claims)
        signature = _unpad(tail)
    # JSON that is nested too deeply is no error of the decoder's own.
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError) as error:
        raise Rejected(Reason.INVALID_PROVIDER_TOKEN) from error
    if header.alg != "ES256":
        raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
    return header, claims, f"{head}.{body}".encode(), signature


def _unpad(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _check_signature(key: ProviderKey, signed: bytes, signature: bytes) -> None:
    public_key = load_pem_public_key(key.public_key.encode())
    if len(signature) == _RAW_SIGNATURE_BYTES:
        half = _RAW_SIGNATURE_BYTES // 2
        r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        signature = encode_dss_signature(r, s)
    try:
        if not isinstance(public_key, ec.EllipticCurvePublicKey):
            raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
        public_key.verify(signature, signed, _ALGORITHM)
    except InvalidSignature as error:
        raise Rejected(Reason.INVALID_PROVIDER_TOKEN) from error


def _check_age(provider: Provider, now: int) -> None:
    age = now - provider.issued_at
    if age > TOKEN_LIFE_MS:
        raise Rejected(Reason.EXPIRED_PROVIDER_TOKEN)
    if age < -TOKEN_LIFE_MS:
        raise Rejected(Reason.INVALID_PROVIDER_TOKEN)
