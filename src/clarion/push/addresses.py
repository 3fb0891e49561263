"""The addresses of devices at other push services: tokens of APNs and FCM, Web Push subscriptions.

Each check returns the value, or raises `ValueError` with the reason.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

from clarion.push.model import Platform

# Tokens of APNs and FCM mean something to these services only.
FOREIGN_TOKENS = frozenset({Platform.IOS, Platform.ANDROID})
# Those of browsers have 150 to 500 characters.
ENDPOINT_LENGTH = 2_000
P256DH_BYTES = 65
AUTH_BYTES = 16
_TOKEN = re.compile(r"[!-~]{8,4096}")
# For the OpenAPI document.
TOKEN = f"^{_TOKEN.pattern}$"
_PRINTABLE = re.compile(r"[!-~]+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")


def check_token(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError("must have 8 to 4096 printable ASCII characters without spaces")
    return token


def check_endpoint(endpoint: str) -> str:
    """Check the form of a URL; whether its host may be called is decided when it is resolved."""
    wrong = f"must be an https URL of at most {ENDPOINT_LENGTH:,} characters"
    if len(endpoint) > ENDPOINT_LENGTH or not _PRINTABLE.fullmatch(endpoint):
        raise ValueError(wrong)
    try:
        parts = urlsplit(endpoint)
        has_port = parts.port != 0
    except ValueError as error:
        raise ValueError(wrong) from error
    if parts.scheme != "https" or not parts.hostname or not has_port:
        raise ValueError(wrong)
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("must have neither a user name nor a fragment")
    return endpoint


def check_p256dh(text: str) -> str:
    wrong = f"must be a point of P-256: {P256DH_BYTES} bytes, uncompressed, in base64url"
    key = _decode(text, P256DH_BYTES, wrong)
    try:
        # Another length or form is refused above; this finds points that are not on the curve.
        EllipticCurvePublicKey.from_encoded_point(SECP256R1(), key)
    except ValueError as error:
        raise ValueError(wrong) from error
    return text.rstrip("=")


def check_auth(text: str) -> str:
    _decode(text, AUTH_BYTES, f"must be {AUTH_BYTES} bytes in base64url")
    return text.rstrip("=")


def _decode(text: str, size: int, wrong: str) -> bytes:
    if len(text) > 2 * size or not _BASE64URL.fullmatch(text):
        raise ValueError(wrong)
    bare = text.rstrip("=")
    try:
        decoded = base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except binascii.Error as error:
        raise ValueError(wrong) from error
    if len(decoded) != size:
        raise ValueError(wrong)
    return decoded
