"""User tokens, signed on your server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time


def sign_user_token(
    *, app_id: str, user_id: str, secret: str, hours: float = 1.0, algorithm: str = "HS256"
) -> str:
    """Return a token with which a user's own client may read their inbox.

    `secret` is the app's user secret, or its private key in PEM for ES256 and EdDSA, which need the
    package `PyJWT[crypto]`. Anyone who has it can read every inbox of the app: keep it on your
    server.
    """
    now = int(time.time())
    claims = {"sub": user_id, "aud": app_id, "iat": now, "exp": now + round(hours * 3600)}
    if algorithm != "HS256":
        import jwt  # noqa: PLC0415 - an extra of the package

        return jwt.encode(claims, secret, algorithm=algorithm)
    signed = b".".join(
        _encode(json.dumps(part, separators=(",", ":")).encode())
        for part in ({"alg": algorithm, "typ": "JWT"}, claims)
    )
    signature = hmac.digest(secret.encode(), signed, hashlib.sha256)
    return b".".join((signed, _encode(signature))).decode()


def _encode(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")
