"""What more than one part of the house uses: once, allowances, pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyClaim:
    """What makes a request happen once: its key, what it said, and what it is answered."""

    app_id: str
    key: str
    fingerprint: bytes  # of method, path and body: the same key with another request is refused
    answer: bytes
    now: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The answer that the first request with the same idempotency key was given."""

    answer: bytes
