"""Registers devices, and caches them by token.

A change on this node is seen at once, a change on another node when the bus delivers it. While the
bus is disconnected, cached values are used only for seconds.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from clarion.access.port import Vault
from clarion.clock import Clock, from_monotonic
from clarion.errors import FieldFault, InvalidFields
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from clarion.push.connections import Connections
from clarion.push.model import (
    Device,
    DeviceDetails,
    DevicePreferences,
    InvalidationReason,
    Platform,
    hash_secret,
    hash_token,
)
from clarion.push.port import Devices
from clarion.sockets.protocol import CloseCode

KNOWN_MS = 3600 * 1000
UNKNOWN_MS = 300 * 1000
# While the bus is disconnected. Providers delete tokens that are answered as unknown or invalid:
# such an answer must not be older than a moment.
DISCONNECTED_KNOWN_MS = 5_000
DISCONNECTED_UNKNOWN_MS = 1_000
ENTRIES_LIMIT = 200_000
# Devices that are revoked or deleted at a time; there are more only after a limit was lowered.
EXCESS_LIMIT = 100
# Invalid devices of a user that are kept, so that a push to one is answered as such.
INVALID_KEPT = 10
_SECRET_BYTES = 24
# Returns whether a user, given as app and user id, was deleted or erased.
IsGone = Callable[[str, str], Awaitable[bool]]


class Registered(NamedTuple):
    """A device that was registered, and the devices of its user that were revoked for it."""

    device: Device
    revoked: tuple[str, ...] = ()


class Registry:
    """Registers devices and finds them by token.

    A device that is revoked or deleted, or has a new secret or user, is disconnected. A user may
    have `per_user` valid devices: one more revokes the least recently seen one.
    """

    def __init__(
        self,
        devices: Devices,
        connections: Connections,
        clock: Clock,
        vault: Vault,
        *,
        per_user: int = 3,
        is_gone: IsGone | None = None,
    ) -> None:
        self._is_gone = is_gone
        self.devices = devices
        self._vault = vault
        self.connections = connections
        self._per_user = per_user
        self._clock = clock
        # By app and token hash. Nothing is shared by apps: what one looks up must not make it
        # faster for another.
        self._cache = NodeCache[tuple[str, bytes], Device | None](
            KNOWN_MS, ENTRIES_LIMIT, disconnected_ms=DISCONNECTED_KNOWN_MS
        )
        # Has a device read again that was changed, on every node.
        self.changed = Invalidation("push.device", self._receive_change, self._cache.forget_all)
        self._cache.invalidation = self.changed
        # Connected devices that other nodes have changed, by id; `DeviceChanges` checks them.
        self.announced: dict[str, Device] = {}
        self.is_announced = asyncio.Event()
        # By id, and by app and token hash.
        self.changes = self._cache.changes
        # Since the start, for the metrics.
        self.hits = self.misses = self.registered = self.invalidated = 0

    def get_cached(self, app_id: str, token_hash: bytes, now: int) -> Device | None:
        """Return a cached device without awaiting; None: it may exist, call `find`."""
        # Every push asks, nearly always for a valid device.
        entry = self._cache.get((app_id, token_hash), now)
        if entry is None or (device := entry[1]) is None:
            return None
        if device.invalidated_at is not None and not self._is_fresh(entry, now):
            return None
        self.hits += 1
        return device

    def _is_fresh(self, entry: tuple[int, Device | None], now: int) -> bool:
        """Return whether a cached value may be used; for less time if no device is valid."""
        read_at, device = entry
        if device is not None and device.invalidated_at is None:
            return True
        if self.changed.bus.is_connected:
            return device is not None or now - read_at < UNKNOWN_MS
        return now - read_at < DISCONNECTED_UNKNOWN_MS

    async def find(self, app_id: str, token_hash: bytes) -> Device | None:
        """Return the app's device with this token, valid or not, or None."""
        key = (app_id, token_hash)
        while True:
            now = self._clock.now()
            entry = self._cache.get(key, now)
            if entry is not None and self._is_fresh(entry, now):
                self.hits += 1
                return entry[1]
            self.misses += 1
            before = self.changes.count
            device = await self.devices.find(app_id, token_hash)
            # A change since the read began may not be in what was read: then read again.
            if self._cache.put(key, device, now, before):
                return device

    def is_current(self, device: Device) -> bool:
        """Return whether no change is known since this device was found. Every push asks."""
        return self._cache.peek((device.app_id, device.token_hash)) is device

    async def authorise(self, token: str, secret: str) -> Device | None:
        """Return the device if it is valid and this is its secret.

        The store is asked each time: another node may have renewed the secret a moment ago.
        """
        hashes = hash_token(token), hash_secret(secret)
        while True:
            before = self.changes.count
            device = await self.devices.authenticate(*hashes)
            # A change since the read began may not be in what was read, and found no connection.
            if device is None or not self.changes.has(device.id, before):
                return device

    def last_active_at(self, device: Device) -> int:
        """Return when it last sent something over its connection here, or else was seen."""
        connection = self.connections.get(device.id)
        session = connection.session if connection else None
        return from_monotonic(self._clock, session.received_at) if session else device.last_seen_at

    def propose(
        self,
        *,
        app_id: str,
        token: str,
        platform: Platform,
        details: DeviceDetails,
        address: str | None = None,
    ) -> tuple[Device, str]:
        """Return a new device and its secret, without storing it.

        `address` is what another push service needs to reach it; it is sealed.
        """
        now = self._clock.now()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        device = Device(
            id=self._clock.new_id(),
            app_id=app_id,
            token_hash=hash_token(token),
            secret_hash=hash_secret(secret),
            platform=platform,
            details=details,
            created_at=now,
            last_seen_at=now,
        )
        if address is None:
            return device, secret
        sealed = self._vault.seal(address.encode(), device.address_context)
        return replace(device, address=sealed), secret

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | Registered | None:
        """Add a device; None if the app has one with its token."""
        await self._check_user(device.app_id, device.details)
        added = await self.devices.add(device, once)
        if isinstance(added, StoredResponse):
            return added
        if not added:
            return None
        self._change(device)
        self.registered += 1
        return Registered(device, await self._revoke_excess(device))

    async def refresh(
        self, device: Device, *, is_by_app: bool, secret: str | None = None
    ) -> Registered | None:
        """Refresh the device that has this token; None if the caller may not, as in `Devices`."""
        await self._check_user(device.app_id, device.details)
        proof = b"" if secret is None else hash_secret(secret)
        refreshed = await self.devices.refresh(device, is_by_app=is_by_app, proof=proof)
        return await self._take_change(refreshed)

    async def renew_secret(self, device: Device) -> str:
        """Replace the secret of a device and return the new one; end its connection."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        await self.devices.set_secret(device.app_id, device.id, hash_secret(secret))
        self._change(device)
        self._disconnect(device.id, CloseCode.REVOKED, "the device has a new secret")
        return secret

    async def update(self, app_id: str, device_id: str, details: DeviceDetails) -> Device | None:
        """Update the details that are not None."""
        await self._check_user(app_id, details)
        now = self._clock.now()
        updated = await self.devices.update(app_id, device_id, details, now)
        await self._take_change(updated)
        return updated

    async def set_preferences(
        self,
        app_id: str,
        device_id: str,
        edit: Callable[[DevicePreferences], DevicePreferences],
    ) -> Device | None:
        """Edit the preferences of a device; None if the app has no such device."""
        return self._change(await self.devices.set_preferences(app_id, device_id, edit))

    async def invalidate(
        self,
        app_id: str,
        device_id: str,
        reason: InvalidationReason,
        address: bytes | None = None,
    ) -> Device | None:
        """Invalidate a device; None if the app has no such valid device.

        With the address that was found gone: only if it has not been registered again since.
        """
        now = self._clock.now()
        invalidated = await self.devices.invalidate(app_id, device_id, reason, now, address)
        device = self._change(invalidated)
        self.invalidated += device is not None
        if device is not None or address is None:
            self._disconnect(device_id, CloseCode.REVOKED, "the device was revoked")
        return device

    async def delete(self, app_id: str, device_id: str) -> Device | None:
        """Delete a device; None if the app has no such device."""
        device = self._change(await self.devices.delete(app_id, device_id, self._clock.now()))
        self._disconnect(device_id, CloseCode.REVOKED, "the device was deleted")
        return device

    def forget_users(self, owners: Collection[tuple[str, str]]) -> None:
        """Have the devices of users read again who are given as app and user id."""
        self._cache.forget_where(
            lambda _, each: each is not None and (each.app_id, each.details.user_id or "") in owners
        )

    async def _check_user(self, app_id: str, details: DeviceDetails) -> None:
        """Refuse a device of a user who was deleted or erased."""
        user_id = details.user_id
        if user_id is None or self._is_gone is None or not await self._is_gone(app_id, user_id):
            return
        raise InvalidFields(FieldFault("user_id", f"there is no user {user_id}: it was deleted"))

    async def _take_change(self, device: Device | None) -> Registered | None:
        """Have a changed device read again; end its connection if its user is another now."""
        if device is None:
            return None
        self._change(device)
        connection = self.connections.get(device.id)
        if connection is not None and connection.session.device is not None:
            self._compare(connection.session.device, device)
        return Registered(device, await self._revoke_excess(device))

    async def check(
        self,
        app_id: str,
        connected: Collection[Device],
        on_missing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """End the connections of devices that were changed since they connected, by any node.

        `on_missing` is called first if some are no longer there.
        """
        found = await self.devices.find_many(app_id, [device.id for device in connected])
        if on_missing is not None and len(found) < len(connected):
            await on_missing()
        for device in connected:
            self._compare(device, found.get(device.id))

    def _compare(self, connected: Device, now: Device | None) -> None:
        """End the connection of a device that may not stay connected after a change."""
        if now is None or not now.is_valid:
            self._forget(connected)
            self._disconnect(connected.id, CloseCode.REVOKED, "the device was revoked")
        elif now.secret_hash != connected.secret_hash:
            self._forget(connected)
            self._disconnect(connected.id, CloseCode.REVOKED, "the device has a new secret")
        elif now.details.user_id != connected.details.user_id:
            self._forget(connected)
            reason = "the device has another user now: reconnect"
            self._disconnect(connected.id, CloseCode.RESTARTING, reason)
        elif now.connected_at is not None:
            self.connections.end_older(connected.id, now.connected_at)

    async def _revoke_excess(self, changed: Device) -> tuple[str, ...]:
        """Revoke the devices of a user beyond the limit, least recently seen first; return them.

        Of those that were revoked before, all but the last ones are deleted.
        """
        app_id, user_id = changed.app_id, changed.details.user_id
        if user_id is None:
            return ()
        known = await self.devices.valid_of_user(app_id, user_id, self._per_user + EXCESS_LIMIT)
        excess = known[self._per_user :]
        for device in excess:
            await self.invalidate(app_id, device.id, InvalidationReason.REVOKED)
        dead = await self.devices.invalid_of_user(
            app_id, user_id, keep=INVALID_KEPT, limit=EXCESS_LIMIT
        )
        for device_id in dead:
            await self.delete(app_id, device_id)
        return tuple(device.id for device in excess)

    def _disconnect(self, device_id: str, code: CloseCode, reason: str) -> None:
        connection = self.connections.get(device_id)
        if connection is not None:
            connection.carry_out(connection.session.end(code, reason))

    def _change(self, device: Device | None) -> Device | None:
        """Have a device read again that was changed here, on every node, and return it."""
        if device is not None:
            self._forget(device)
            self.changed.publish(device.app_id, bytes(device.token_hash), device.id)
        return device

    def _receive_change(self, app_id: str, token_hash: bytes, device_id: str) -> None:
        """Have a device read again that another node has changed; and now, if it is connected."""
        self._drop(app_id, token_hash, device_id)
        connection = self.connections.get(device_id)
        if connection is not None and connection.session.device is not None:
            self.announced[device_id] = connection.session.device
            self.is_announced.set()

    def _forget(self, device: Device) -> None:
        self._drop(device.app_id, device.token_hash, device.id)

    def _drop(self, app_id: str, token_hash: bytes, device_id: str) -> None:
        """Drop a changed device from the cache, so that it is read again.

        The new value is not cached: with concurrent changes, it may not be the last one.
        """
        self.changes.note(device_id)
        self._cache.forget((app_id, token_hash))


def new_token() -> str:
    """Generate a device token: 64 hexadecimal digits, as APNs clients expect."""
    return secrets.token_hex(32)
