"""Time-based one-time passwords (RFC 6238): SHA-1, six digits, steps of 30 seconds.

Authenticator apps know no other form reliably.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from urllib.parse import quote, urlencode

STEP_MS = 30_000
DIGITS = 6
_SECRET_BYTES = 20
# Steps before and after the current one that are accepted: clocks differ, and people type slowly.
_DRIFT = 1


def new_secret() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


def code_at(secret: bytes, step: int) -> str:
    """Return the code of a time step (RFC 4226, 5.3)."""
    digest = hmac.digest(secret, step.to_bytes(8, "big"), "sha1")
    offset = digest[-1] & 0x0F
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def find_step(secret: bytes, code: str, now: int, after: int) -> int | None:
    """Return the step whose code this is, among those that are accepted now, or None.

    Steps up to `after` were used before.
    """
    current, given = now // STEP_MS, code.replace(" ", "").encode("utf-8", "replace")
    steps = range(max(0, current - _DRIFT, after + 1), current + _DRIFT + 1)
    # All are compared, so that the time says nothing about which one it is.
    found = [step for step in steps if hmac.compare_digest(code_at(secret, step).encode(), given)]
    return found[0] if found else None


def encode_secret(secret: bytes) -> str:
    """Return the secret as it is typed into an authenticator app."""
    return base64.b32encode(secret).decode()


def decode_secret(text: str) -> bytes:
    """Return the secret that was typed into an authenticator app."""
    return base64.b32decode(text)


def uri_of(secret: bytes, username: str, issuer: str) -> str:
    """Return the URI that an authenticator app reads from a QR code."""
    label = quote(f"{issuer}:{username}", safe="")
    query = urlencode({"secret": encode_secret(secret), "issuer": issuer}, quote_via=quote)
    return f"otpauth://totp/{label}?{query}"
