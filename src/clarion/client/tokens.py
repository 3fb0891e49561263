"""User tokens, signed on your server."""

from __future__ import annotations

import time

import jwt


def sign_user_token(
    *, app_id: str, user_id: str, secret: str, hours: float = 1.0, algorithm: str = "HS256"
) -> str:
    """Return a token with which a user's own client may read their inbox.

    `secret` is the app's user secret, or its private key in PEM for ES256 and EdDSA. Anyone who
    has it can read every inbox of the app: keep it on your server.
    """
    now = int(time.time())
    claims = {"sub": user_id, "aud": app_id, "iat": now, "exp": now + round(hours * 3600)}
    return jwt.encode(claims, secret, algorithm=algorithm)
