"""The port of the Web Push endpoints."""

from __future__ import annotations

from typing import Protocol

from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.push.webpush.model import PushEndpoint, StoredEndpoint

# UnifiedPush has one for each app of a phone that gets messages.
ENDPOINTS_LIMIT = 100


class PushEndpoints(Protocol):
    """The Web Push endpoints of devices. They are deleted with their device."""

    async def add(
        self, endpoint: PushEndpoint, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add an endpoint, and delete those that the device has of other users.

        False if the device has 100 endpoints. `once` as in `Keys.create`.
        """

    async def find(self, capability_hash: bytes) -> StoredEndpoint | None:
        """Return the endpoint with this hash, of whatever app, or None."""

    async def list(
        self, app_id: str, device_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[PushEndpoint]:
        """Return the endpoints that a user has on a device, oldest first."""

    async def delete(self, app_id: str, device_id: str, endpoint_id: str) -> PushEndpoint | None:
        """Delete an endpoint and return it; None if the device has no such endpoint."""
