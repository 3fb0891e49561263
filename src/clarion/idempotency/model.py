"""A request that must take effect once, and the stored response to it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyClaim:
    """An idempotency key, the request it was sent with and the response to store for it."""

    app_id: str
    key: str
    fingerprint: bytes  # of method, path and body: the key with another request is refused
    answer: bytes  # sealed
    created_at: int
    expires_at: int
    user_id: str | None = None  # whom the response is about, if it is one user


class StoredResponse(msgspec.Struct, frozen=True):
    """The response to the first request with an idempotency key."""

    answer: bytes  # sealed


def answer_context(app_id: str, key: str) -> str:
    """Return the context for which a stored response is sealed."""
    return f"apps/{app_id}/idempotency/{key}"
