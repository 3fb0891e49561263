"""Creates and deletes Web Push endpoints, and finds them by the secret part of their URL."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Container

from clarion.clock import Clock
from clarion.errors import Conflict, EndpointGone, NotFound
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from clarion.push.model import Device
from clarion.push.registry import Registry
from clarion.push.webpush.model import EndpointOfDevice, PushEndpoint, StoredEndpoint
from clarion.push.webpush.port import ENDPOINTS_LIMIT, PushEndpoints

KNOWN_MS = 300_000
UNKNOWN_MS = 300_000
# While the bus is disconnected: this node sees a change by another one after this time.
DISCONNECTED_MS = 5_000
KNOWN_LIMIT = 100_000
# Apart from the known ones: guesses must not evict those.
UNKNOWN_LIMIT = 10_000
# 192 bits: 32 characters.
_CAPABILITY_BYTES = 24
PREFIX = "/push/"


def hash_capability(capability: str) -> bytes:
    """Return the hash under which an endpoint is stored."""
    return hashlib.sha256(capability.encode("latin-1", "replace")).digest()


class EndpointRegistry:
    """The endpoints of all devices.

    A change is seen at once on this node, and on others when the bus brings it.
    """

    def __init__(
        self,
        endpoints: PushEndpoints,
        devices: Registry,
        clock: Clock,
        public_url: str,
        deleted_apps: Container[str] = (),
    ) -> None:
        self.endpoints = endpoints
        self.url = public_url + PREFIX
        self._devices = devices
        self._clock = clock
        self._deleted_apps = deleted_apps
        self._known = NodeCache[bytes, StoredEndpoint](
            KNOWN_MS, KNOWN_LIMIT, disconnected_ms=DISCONNECTED_MS
        )
        self._unknown = NodeCache[bytes, None](
            UNKNOWN_MS, UNKNOWN_LIMIT, disconnected_ms=DISCONNECTED_MS
        )
        # Has an endpoint read again, by the hash of its secret part, on every node.
        self.forget = Invalidation("push.endpoint", self._forget, self._forget_all)
        self._known.invalidation = self._unknown.invalidation = self.forget

    def propose(
        self, device: Device, *, vapid_key: str | None, label: str | None
    ) -> tuple[PushEndpoint, str]:
        """Return a new endpoint and its URL, without storing it."""
        capability = secrets.token_urlsafe(_CAPABILITY_BYTES)
        endpoint = PushEndpoint(
            id=self._clock.new_id(),
            app_id=device.app_id,
            device_id=device.id,
            user_id=device.details.user_id or "",
            capability_hash=hash_capability(capability),
            vapid_key=vapid_key,
            label=label,
            created_at=self._clock.now(),
        )
        return endpoint, self.url + capability

    async def add(
        self, endpoint: PushEndpoint, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add an endpoint; `Conflict` if its device has too many."""
        added = await self.endpoints.add(endpoint, once)
        if added is False:
            limit = f"{ENDPOINTS_LIMIT} endpoints"
            raise Conflict(f"A device can have {limit}. Delete one that is no longer used.")
        return added if isinstance(added, StoredResponse) else None

    async def delete(self, app_id: str, device_id: str, endpoint_id: str) -> None:
        """Delete an endpoint; `NotFound` if the device has no such endpoint."""
        deleted = await self.endpoints.delete(app_id, device_id, endpoint_id)
        if deleted is None:
            raise NotFound("The device has no such endpoint.")
        self.forget(bytes(deleted.capability_hash))

    def _forget(self, capability_hash: bytes) -> None:
        self._known.forget(capability_hash)
        self._unknown.forget(capability_hash)

    def _forget_all(self) -> None:
        self._known.forget_all()
        self._unknown.forget_all()

    def forget_users(self, owners: Collection[tuple[str, str]]) -> None:
        """Have the endpoints of users read again who are given as app and user id."""
        self._known.forget_where(
            lambda _, each: (each.endpoint.app_id, each.endpoint.user_id) in owners
        )

    async def find(self, capability: str) -> EndpointOfDevice:
        """Return the endpoint with its device.

        `NotFound` if it does not exist; `EndpointGone` if its device is no longer valid, or has
        another user.
        """
        return await self.find_hashed(hash_capability(capability))

    async def find_hashed(self, capability_hash: bytes) -> EndpointOfDevice:
        """Return the same by the hash of the secret part."""
        found = await self._find_stored(capability_hash)
        if found is None:
            raise NotFound("There is no such push endpoint.")
        endpoint, token_hash = found
        if endpoint.app_id in self._deleted_apps:
            raise EndpointGone
        device = await self._find_device(endpoint.app_id, token_hash)
        if device is None or device.id != endpoint.device_id or not device.is_valid:
            raise EndpointGone
        if (device.details.user_id or "") != endpoint.user_id:
            raise EndpointGone
        return EndpointOfDevice(endpoint, device)

    def is_current(self, found: EndpointOfDevice) -> bool:
        """Return whether no change is known since this endpoint was found."""
        known = self._known.peek(found.endpoint.capability_hash)
        is_there = known is not None and known.endpoint.id == found.endpoint.id
        return is_there and self._devices.is_current(found.device)

    async def _find_stored(self, key: bytes) -> StoredEndpoint | None:
        now = self._clock.now()
        if known := self._known.get(key, now):
            return known[1]
        if self._unknown.get(key, now):
            return None
        while True:
            since = self._known.changes.count
            found = await self.endpoints.find(key)
            if found is None:
                # It stays unknown: secret parts are random.
                self._unknown.put(key, None, now, self._unknown.changes.count)
                return None
            if self._known.put(key, found, now, since):
                return found

    async def _find_device(self, app_id: str, token_hash: bytes | None) -> Device | None:
        if token_hash is None:
            return None
        cached = self._devices.get_cached(app_id, token_hash, self._clock.now())
        return cached or await self._devices.find(app_id, token_hash)
