"""Adapters of our own ports in plain dictionaries, and a way to stop them in the middle.

Every method of a store here stops twice: before it does something, and before it says so. What the
test lets pass in which order is an interleaving, as two nodes and a network make them.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from clarion.access.model import App, ProviderKey
from clarion.errors import StoreUnavailable
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.push.model import (
    Device,
    DeviceDetails,
    InvalidationReason,
    Message,
    MessageReason,
    MessageStatus,
    PushPriority,
    StoragePolicy,
    Subscription,
)

WAITS = (MessageStatus.PENDING, MessageStatus.QUEUED)
TURNS = 20


class Gates:
    """Where the methods of a store stop. Open gates let everything pass at once."""

    def __init__(self) -> None:
        self.are_open = True
        self.trouble: list[bool] = []  # whether each of the next stops fails
        self._waiting: list[asyncio.Future[None]] = []

    async def stop(self) -> None:
        if self.trouble and self.trouble.pop(0):
            raise StoreUnavailable
        if not self.are_open:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def let_pass(self, number: int = 0) -> None:
        """Let one of those who wait go on, and wait until nothing moves any more."""
        await settle()
        if self._waiting:
            self._waiting.pop(number % len(self._waiting)).set_result(None)
        await settle()

    async def let_all_pass(self) -> None:
        """Let everybody go on, those who come after them too, until nobody waits."""
        await settle()
        while self._waiting:
            await self.let_pass()


async def settle() -> None:
    """Let the loop turn until what can go on has gone on."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@dataclass
class MemoryApps:
    """The `Apps` port; counts how often it is asked for a key."""

    apps: dict[str, App] = field(default_factory=dict)
    keys: dict[str, ProviderKey] = field(default_factory=dict)
    asked: int = 0

    async def create(self, app: App, provider_key: ProviderKey) -> None:
        self.apps[app.id] = app
        self.keys[provider_key.key_id] = provider_key

    async def get(self, app_id: str) -> App | None:
        return self.apps.get(app_id)

    async def list(self) -> tuple[App, ...]:
        return tuple(self.apps.values())

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        self.asked += 1
        return self.keys.get(key_id)


@dataclass
class MemoryDevices:
    """The `Devices` port; counts how often it is asked for a token."""

    gates: Gates = field(default_factory=Gates)
    devices: dict[str, Device] = field(default_factory=dict)
    asked: int = 0

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        assert once is None
        await self.gates.stop()
        is_taken = self._with_token(device.token_hash) is not None
        if not is_taken:
            self.devices[device.id] = device
        await self.gates.stop()
        return not is_taken

    async def refresh(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | Device:
        assert once is None
        known = self._with_token(device.token_hash) or device
        valid = replace(known, invalidated_at=None, invalidation_reason=None)
        refreshed = await self._change(known.id, lambda _: valid)
        return refreshed or valid

    async def set_secret(self, app_id: str, device_id: str, secret_hash: bytes) -> bool:
        _ = app_id
        changed = await self._change(device_id, lambda d: replace(d, secret_hash=secret_hash))
        return changed is not None

    async def update(self, app_id: str, device_id: str, details: DeviceDetails) -> Device | None:
        _ = app_id
        return await self._change(device_id, lambda d: replace(d, details=details))

    async def find(self, token_hash: bytes) -> Device | None:
        self.asked += 1
        await self.gates.stop()
        found = self._with_token(token_hash)
        await self.gates.stop()
        return found

    async def get(self, app_id: str, device_id: str) -> Device | None:
        _ = app_id
        return self.devices.get(device_id)

    async def list(
        self, app_id: str, *, user_id: str | None, after: str | None, limit: int
    ) -> Page[Device]:
        raise NotImplementedError(app_id, user_id, after, limit)

    async def valid_of_user(self, app_id: str, user_id: str, limit: int) -> tuple[Device, ...]:
        raise NotImplementedError(app_id, user_id, limit)

    async def touch(self, device_ids: Sequence[str], now: int) -> None:
        raise NotImplementedError(device_ids, now)

    async def invalidate(
        self, app_id: str, device_id: str, reason: InvalidationReason, now: int
    ) -> Device | None:
        _ = app_id
        return await self._change(
            device_id, lambda d: replace(d, invalidated_at=now, invalidation_reason=reason)
        )

    async def delete(self, app_id: str, device_id: str, now: int) -> Device | None:
        _ = app_id, now
        await self.gates.stop()
        removed = self.devices.pop(device_id, None)
        await self.gates.stop()
        return removed

    async def _change(self, device_id: str, change: Callable[[Device], Device]) -> Device | None:
        await self.gates.stop()
        device = self.devices.get(device_id)
        if device is not None:
            device = self.devices[device_id] = change(device)
        await self.gates.stop()
        return device

    def _with_token(self, token_hash: bytes) -> Device | None:
        found = (each for each in self.devices.values() if each.token_hash == token_hash)
        return next(found, None)


Entry = tuple[Message, MessageStatus, MessageReason | None]


@dataclass
class MemoryMessages:
    """The `Messages` port."""

    gates: Gates = field(default_factory=Gates)
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    async def add(
        self, message: Message, status: MessageStatus, reason: MessageReason | None
    ) -> bool:
        await self.gates.stop()
        key = (message.device_id, message.id)
        is_new = key not in self.entries
        if is_new:
            self._collapse(message)
            self.entries[key] = (message, status, reason)
        await self.gates.stop()
        return is_new

    async def waiting(
        self,
        device_id: str,
        *,
        now: int,
        limit: int,
        least: PushPriority = PushPriority.LOW,
        skip: Collection[str] = (),
    ) -> tuple[Message, ...]:
        await self.gates.stop()
        found = [m for m in self.stored(device_id) if m.expires_at > now and m.priority >= least]
        found = [m for m in found if m.id not in skip][:limit]
        await self.gates.stop()
        return tuple(found)

    async def count_waiting(self, device_id: str, *, now: int, limit: int) -> int:
        await self.gates.stop()
        return min(limit, sum(m.expires_at > now for m in self.stored(device_id)))

    async def acknowledge(self, pairs: Sequence[tuple[str, str]], now: int) -> None:
        _ = now
        await self.gates.stop()
        for key in pairs:
            self._end(key, MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)
        await self.gates.stop()

    async def finish(
        self,
        device_id: str,
        ids: Sequence[str],
        status: MessageStatus,
        reason: MessageReason,
        now: int,
    ) -> None:
        _ = now
        await self.gates.stop()
        for message_id in ids:
            self._end((device_id, message_id), status, reason)
        await self.gates.stop()

    async def trim(self, device_id: str, keep: int, now: int) -> int:
        _ = now
        await self.gates.stop()
        stored = sorted(self.stored(device_id), key=lambda m: (-m.priority, -m.sequence))
        for message in stored[keep:]:
            self._end((device_id, message.id), MessageStatus.EXPIRED, MessageReason.OVERFLOW)
        await self.gates.stop()
        return len(stored[keep:])

    async def expire(self, now: int, limit: int) -> int:
        raise NotImplementedError(now, limit)

    def stored(self, device_id: str) -> list[Message]:
        """Return what is kept and waits for a device: by priority, then oldest first."""
        waiting = (
            m
            for m, status, _ in self.entries.values()
            if m.device_id == device_id and m.is_stored and status in WAITS
        )
        return sorted(waiting, key=lambda m: (-m.priority, m.sequence))

    def status_of(self, message: Message) -> MessageStatus:
        return self.entries[message.device_id, message.id][1]

    def _collapse(self, message: Message) -> None:
        for key, (other, _, _) in self.entries.items():
            is_same = other.collapse_id is not None and other.collapse_id == message.collapse_id
            if is_same and other.device_id == message.device_id:
                self._end(key, MessageStatus.EXPIRED, MessageReason.COLLAPSED)

    def _end(self, key: tuple[str, str], status: MessageStatus, reason: MessageReason) -> None:
        if key in self.entries and self.entries[key][1] in WAITS:
            self.entries[key] = (self.entries[key][0], status, reason)


@dataclass
class MemoryBroadcasts:
    """The `Broadcasts` port, for topics of one app."""

    gates: Gates = field(default_factory=Gates)
    highest: dict[str, int] = field(default_factory=dict)
    kept: dict[str, list[Message]] = field(default_factory=dict)
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)

    async def subscribe(self, app_id: str, device_id: str, topic: str, now: int) -> int | None:
        _ = app_id, now
        await self.gates.stop()
        cursor = self.cursors.setdefault((device_id, topic), self.highest.get(topic, 0))
        await self.gates.stop()
        return cursor

    async def unsubscribe(self, device_id: str, topic: str) -> bool:
        await self.gates.stop()
        cursor = self.cursors.pop((device_id, topic), None)
        await self.gates.stop()
        return cursor is not None

    async def subscriptions(self, device_id: str) -> tuple[Subscription, ...]:
        await self.gates.stop()
        found = tuple(
            Subscription(topic=topic, cursor=cursor)
            for (each, topic), cursor in self.cursors.items()
            if each == device_id
        )
        await self.gates.stop()
        return found

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: IdempotencyClaim | None = None
    ) -> StoredResponse | int | None:
        assert once is None
        await self.gates.stop()
        topic = message.topic or ""
        sequence = self.highest[topic] = self.highest.get(topic, 0) + 1
        if storage_policy is not StoragePolicy.NONE:
            self._keep(message._replace(sequence=sequence), topic)
        await self.gates.stop()
        return sequence

    async def missed(
        self, app_id: str, topic: str, *, cursor: int, now: int, limit: int
    ) -> tuple[Message, ...]:
        _ = app_id
        await self.gates.stop()
        found = [m for m in self.kept.get(topic, ()) if m.sequence > cursor and m.expires_at > now]
        await self.gates.stop()
        return tuple(found[:limit])

    async def advance(self, device_id: str, topic: str, cursor: int) -> None:
        await self.gates.stop()
        if (device_id, topic) in self.cursors:
            self.cursors[device_id, topic] = max(cursor, self.cursors[device_id, topic])
        await self.gates.stop()

    async def expire(self, now: int, limit: int) -> int:
        raise NotImplementedError(now, limit)

    def _keep(self, message: Message, topic: str) -> None:
        kept = self.kept.setdefault(topic, [])
        if message.collapse_id is not None:
            kept[:] = [each for each in kept if each.collapse_id != message.collapse_id]
        kept.append(message)
