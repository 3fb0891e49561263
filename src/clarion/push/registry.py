"""Devices by token, looked up fast: kept in memory, and right at once after a change."""

from __future__ import annotations

import hashlib
import secrets
from hmac import compare_digest
from typing import TYPE_CHECKING

from clarion.idempotency.model import StoredResponse
from clarion.push.model import Device, DeviceDetails, InvalidationReason, Platform

if TYPE_CHECKING:
    from clarion.clock import Clock
    from clarion.idempotency.model import IdempotencyClaim
    from clarion.push.port import Devices

KNOWN_MS = 3600 * 1000
UNKNOWN_MS = 300 * 1000
ENTRIES_LIMIT = 200_000
# So many are revoked at a time; there are more only after the limit was lowered.
ROOM_LIMIT = 100
_TOKEN_BYTES = 32
_SECRET_BYTES = 24


def hash_secret(secret: str) -> bytes:
    """Return what a device's secret is known by."""
    return hashlib.sha256(secret.encode()).digest()


class Registry:
    """Registers devices and finds them by token."""

    def __init__(self, devices: Devices, clock: Clock, *, per_user: int = 3) -> None:
        self._devices = devices
        self._per_user = per_user
        self._clock = clock
        # Until when each is believed. Oldest first, so that the oldest makes room.
        self._entries: dict[bytes, tuple[int, Device | None]] = {}
        self.hits = 0
        self.misses = 0

    def recall(self, token_hash: bytes, now: int) -> Device | None:
        """Return a device that is known in memory; None says nothing. No push waits for it."""
        entry = self._entries.get(token_hash)
        if entry is None or entry[1] is None or now >= entry[0]:
            return None
        self.hits += 1
        return entry[1]

    async def find(self, token_hash: bytes) -> Device | None:
        """Return the device of a token whatever its state, or None."""
        while True:
            now = self._clock.now()
            entry = self._entries.get(token_hash)
            if entry is not None and now < entry[0]:
                self.hits += 1
                return entry[1]
            self.misses += 1
            device = await self._devices.find(token_hash)
            # What changed while we looked may not be in what we saw: then we look again.
            if self._entries.get(token_hash) is entry:
                self._keep(token_hash, device, now + (KNOWN_MS if device else UNKNOWN_MS))
                return device

    def is_current(self, device: Device) -> bool:
        """Whether no change is known since this was found; every push asks, so no look-up."""
        entry = self._entries.get(device.token_hash)
        return entry is not None and entry[1] is device

    async def authorise(self, token: str, secret: str) -> Device | None:
        """Return the device if it is valid and the secret is its own."""
        token_hash = hashlib.sha256(token.lower().encode()).digest()
        device = await self.find(token_hash)
        if device is None or not device.is_valid:
            return None
        return device if compare_digest(device.secret_hash, hash_secret(secret)) else None

    def propose(
        self, *, app_id: str, token: str, platform: Platform, details: DeviceDetails
    ) -> tuple[Device, str]:
        """Return a new device and its secret; nothing is stored yet."""
        now = self._clock.now()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        device = Device(
            id=self._clock.new_id(),
            app_id=app_id,
            token_hash=hashlib.sha256(token.lower().encode()).digest(),
            secret_hash=hash_secret(secret),
            platform=platform,
            details=details,
            created_at=now,
            last_seen_at=now,
        )
        return device, secret

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a device; False if its token is taken."""
        added = await self._devices.add(device, once)
        if added is True:
            self._forget(device.token_hash)
        return added

    async def refresh(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | Device:
        """Refresh the device that has this token."""
        refreshed = await self._devices.refresh(device, once)
        if not isinstance(refreshed, StoredResponse):
            self._forget(refreshed.token_hash)
        return refreshed

    async def make_room(self, app_id: str, user_id: str | None) -> tuple[Device, ...]:
        """Revoke what a user has beyond the limit, least recently seen first, and return it."""
        if user_id is None:
            return ()
        known = await self._devices.valid_of_user(app_id, user_id, self._per_user + ROOM_LIMIT)
        ended = [
            await self.invalidate(app_id, device.id, InvalidationReason.REVOKED)
            for device in known[self._per_user :]
        ]
        return tuple(device for device in ended if device is not None)

    async def renew_secret(self, device: Device) -> str:
        """Give a device another secret and return it."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        secret_hash = hash_secret(secret)
        await self._devices.set_secret(device.app_id, device.id, secret_hash)
        self._forget(device.token_hash)
        return secret

    async def update(self, app_id: str, device_id: str, details: DeviceDetails) -> Device | None:
        """Take over details."""
        device = await self._devices.update(app_id, device_id, details)
        if device is not None:
            self._forget(device.token_hash)
        return device

    async def invalidate(
        self, app_id: str, device_id: str, reason: InvalidationReason
    ) -> Device | None:
        """End a device."""
        device = await self._devices.invalidate(app_id, device_id, reason, self._clock.now())
        if device is not None:
            self._forget(device.token_hash)
        return device

    async def delete(self, app_id: str, device_id: str) -> Device | None:
        """Remove a device."""
        device = await self._devices.delete(app_id, device_id, self._clock.now())
        if device is not None:
            self._forget(device.token_hash)
        return device

    def _forget(self, token_hash: bytes) -> None:
        """Look again next time. Of several changes at once, ours may not be the last."""
        self._keep(token_hash, None, self._clock.now())

    def _keep(self, token_hash: bytes, device: Device | None, until: int) -> None:
        self._entries.pop(token_hash, None)
        if len(self._entries) >= ENTRIES_LIMIT:
            del self._entries[next(iter(self._entries))]
        self._entries[token_hash] = (until, device)


def new_token() -> str:
    """Make a token for a device of our own: 64 hexadecimal digits, as APNs clients expect."""
    return secrets.token_hex(_TOKEN_BYTES)
