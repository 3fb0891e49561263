"""The encryption of Web Push messages: RFC 8291, in one record of `aes128gcm` (RFC 8188)."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from clarion.push.model.vapid import CURVE, point_of, read_base64url, read_public_key

# Every push service takes bodies of 4096 bytes; the header, the end mark and the tag take 103.
PLAIN_LIMIT_BYTES = 3993
AUTH_BYTES = 16
# As UnifiedPush limits it; those of browsers have some 200 bytes.
ENDPOINT_LIMIT_BYTES = 1000
SUBSCRIPTION_LIMIT = 4096
_SALT_BYTES = 16
_RECORD_BYTES = 4096
_LAST_RECORD = b"\x02"
# A browser takes these for secure, too. The guard of targets refuses them unless they are allowed.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class _Keys(msgspec.Struct):
    p256dh: str
    auth: str


class _Subscription(msgspec.Struct):
    endpoint: str
    keys: _Keys


_decode = msgspec.json.Decoder(_Subscription).decode


class BrowserSubscription(NamedTuple):
    """Where a browser is reached, and what its messages are encrypted with."""

    endpoint: str
    key: ec.EllipticCurvePublicKey
    auth: bytes


def read_subscription(value: str) -> BrowserSubscription:
    """Return the subscription of a browser from its JSON; `ValueError` if it is not valid."""
    if len(value) > SUBSCRIPTION_LIMIT:
        raise ValueError(f"must have at most {SUBSCRIPTION_LIMIT:,} characters")
    try:
        given = _decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        shape = '{"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}'
        raise ValueError(f"must be a JSON object like {shape}") from error
    _check_endpoint(given.endpoint)
    try:
        key = read_public_key(given.keys.p256dh)
    except ValueError as error:
        raise ValueError(f"keys.p256dh {error}") from error
    try:
        auth = read_base64url(given.keys.auth)
    except ValueError as error:
        raise ValueError(f"keys.auth {error}") from error
    if len(auth) != AUTH_BYTES:
        raise ValueError(f"keys.auth must be {AUTH_BYTES} bytes in base64url")
    return BrowserSubscription(given.endpoint, key, auth)


def _check_endpoint(endpoint: str) -> None:
    is_printable = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    if not is_printable or len(endpoint) > ENDPOINT_LIMIT_BYTES:
        limit = f"{ENDPOINT_LIMIT_BYTES:,}"
        raise ValueError(f"endpoint must have at most {limit} ASCII characters without spaces")
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError as error:
        raise ValueError("endpoint must be a URL") from error
    is_plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or is_plain):
        raise ValueError("endpoint must be a URL that starts with https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("endpoint must not have a user name or password")


def encrypt(
    plain: bytes,
    subscription: BrowserSubscription,
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Return the body of a message. Key and salt are new for each; a test vector gives its own."""
    if len(plain) > PLAIN_LIMIT_BYTES:
        raise ValueError(f"must have at most {PLAIN_LIMIT_BYTES:,} bytes")
    key = key or ec.generate_private_key(CURVE)
    salt = salt or os.urandom(_SALT_BYTES)
    receiver, sender = point_of(subscription.key), point_of(key.public_key())
    shared = key.exchange(ec.ECDH(), subscription.key)
    secret = _derive(shared, subscription.auth, b"WebPush: info\0" + receiver + sender, 32)
    content_key = _derive(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(secret, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD_BYTES.to_bytes(4, "big") + bytes([len(sender)]) + sender
    return header + AESGCM(content_key).encrypt(nonce, plain + _LAST_RECORD, None)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)
