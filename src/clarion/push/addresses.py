"""The addresses of devices at other push services: tokens of APNs and FCM, Web Push subscriptions.

Each check returns the value, or raises `ValueError` with the reason.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from clarion.push.model import Platform
from clarion.push.model.vapid import POINT_BYTES, read_base64url, read_public_key

# Tokens of APNs and FCM mean something to these services only.
FOREIGN_TOKENS = frozenset({Platform.IOS, Platform.ANDROID})
# Those of browsers have 150 to 500 characters.
ENDPOINT_LENGTH = 2_000
AUTH_BYTES = 16
_TOKEN = re.compile(r"[!-~]{8,4096}")
# For the OpenAPI document.
TOKEN = f"^{_TOKEN.pattern}$"
_PRINTABLE = re.compile(r"[!-~]+")


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
    try:
        read_public_key(text)
    except ValueError as error:
        wrong = f"must be a point of P-256: {POINT_BYTES} bytes, uncompressed, in base64url"
        raise ValueError(wrong) from error
    return text.rstrip("=")


def check_auth(text: str) -> str:
    wrong = f"must be {AUTH_BYTES} bytes in base64url"
    try:
        secret = read_base64url(text)
    except ValueError as error:
        raise ValueError(wrong) from error
    if len(secret) != AUTH_BYTES:
        raise ValueError(wrong)
    return text.rstrip("=")
