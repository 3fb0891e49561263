"""The port of idempotency keys, for work that is not committed in one unit with its response."""

from __future__ import annotations

from typing import Protocol

from clarion.idempotency.model import IdempotencyClaim, StoredResponse


class IdempotencyKeys(Protocol):
    """The keys of all apps, each with the response to its first request."""

    async def find(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Return the response to the first request with this key; None if the key is free.

        `IdempotencyKeyReused` if the first request was a different one.
        """

    async def store(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Store the response; return the other one if another request was faster."""
