"""The ports of the push gateway: devices, messages, topics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.push.model import (
    Device,
    DeviceDetails,
    DeviceTopic,
    Feedback,
    InvalidationReason,
    Message,
    MessageReason,
    MessageRecord,
    MessageStatus,
    PushPriority,
    StoragePolicy,
    Subscription,
)


class Devices(Protocol):
    """The registry of devices. A token belongs to one app, and to one device of it."""

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a device; False if its token is taken. `once` as in `Keys.create`."""
        ...

    async def refresh(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | Device:
        """Refresh the device that has this token, and return it as it is now.

        It keeps its id, secret and time of creation, takes over what the details say (what they
        leave out stays), and is valid again. `Conflict` if the token belongs to another app.
        """
        ...

    async def set_secret(self, app_id: str, device_id: str, secret_hash: bytes) -> bool:
        """Give a device another secret; False if the app has no such device."""
        ...

    async def update(self, app_id: str, device_id: str, details: DeviceDetails) -> Device | None:
        """Take over the details that are not None; None if the app has no such device."""
        ...

    async def find(self, token_hash: bytes) -> Device | None:
        """Return the device with that token whatever its state, or None. Not scoped by app."""
        ...

    async def get(self, app_id: str, device_id: str) -> Device | None:
        """Return the device whatever its state, or None."""
        ...

    async def list(
        self, app_id: str, *, user_id: str | None, after: str | None, limit: int
    ) -> Page[Device]:
        """Return the app's devices, or those of one of its users, in the order of their ids."""
        ...

    async def valid_of_user(self, app_id: str, user_id: str, limit: int) -> tuple[Device, ...]:
        """Return a user's valid devices, those seen last first."""
        ...

    async def touch(self, device_ids: Sequence[str], now: int) -> None:
        """Note that the devices were seen."""
        ...

    async def invalidate(
        self, app_id: str, device_id: str, reason: InvalidationReason, now: int
    ) -> Device | None:
        """End a device: it gets nothing more, what waits for it has failed, its token is in the
        feedback. Returns it, or None if the app has no such device that is valid.
        """
        ...

    async def delete(self, app_id: str, device_id: str, now: int) -> Device | None:
        """Remove a device and its subscriptions, and feed its token back if it was valid.

        Its messages stay in the history. Returns what was removed, or None.
        """
        ...


class FeedbackList(Protocol):
    """Tokens that are no longer valid, for providers to stop using. Survives the devices."""

    async def list(
        self, app_id: str, *, since: int, after: str | None, limit: int
    ) -> Page[Feedback]:
        """Return the app's entries invalidated at `since` or later, oldest first.

        `InvalidFields` if `after` is not the `next` of a page; so in `History.list`.
        """
        ...


class Messages(Protocol):
    """Messages to devices: what waits, and what became of all of them."""

    async def add(
        self, message: Message, status: MessageStatus, reason: MessageReason | None
    ) -> bool:
        """Store a message once; False if the device had one with the same id within 24 hours.

        If it has a collapse id, older messages of the device with the same one that still wait
        become expired, `collapsed`.
        """
        ...

    async def waiting(
        self,
        device_id: str,
        *,
        now: int,
        limit: int,
        least: PushPriority = PushPriority.LOW,
        skip: Collection[str] = (),
    ) -> tuple[Message, ...]:
        """Return stored messages that wait and have not expired: by priority, then oldest first.

        Those with a lower priority than `least` or an id in `skip` are left out.
        """
        ...

    async def count_waiting(self, device_id: str, *, now: int, limit: int) -> int:
        """Return how many stored messages wait and have not expired, counted up to `limit`."""
        ...

    async def acknowledge(self, pairs: Sequence[tuple[str, str]], now: int) -> None:
        """Mark messages delivered, each given as device and message id.

        Ids that are not the device's, or do not wait, change nothing.
        """
        ...

    async def finish(
        self,
        device_id: str,
        ids: Sequence[str],
        status: MessageStatus,
        reason: MessageReason,
        now: int,
    ) -> None:
        """End messages that wait with another status than delivered."""
        ...

    async def trim(self, device_id: str, keep: int, now: int) -> int:
        """Expire as `overflow` what waits beyond `keep`: lowest priority first, then oldest.

        Returns how many were expired.
        """
        ...

    async def expire(self, now: int, limit: int) -> int:
        """Expire messages whose time has passed, at most `limit`; return how many."""
        ...


class History(Protocol):
    """What became of the messages to devices. Survives the devices."""

    async def prune(self, app_id: str, before: int, limit: int) -> int:
        """Delete finished messages accepted before a time, at most `limit`; return how many."""
        ...

    async def list(
        self, app_id: str, *, device_id: str, after: str | None, limit: int
    ) -> Page[MessageRecord]:
        """Return the messages of a device, newest first."""
        ...

    async def get(self, app_id: str, device_id: str, message_id: str) -> MessageRecord | None:
        """Return one message, or None."""
        ...


class DeviceTopics(Protocol):
    """Topics that devices hear. A message to a topic is written once, however many hear it."""

    async def create(self, topic: DeviceTopic) -> bool:
        """Add a topic; False if there is one of that name, deleted ones included."""
        ...

    async def get(self, app_id: str, topic: str) -> DeviceTopic | None:
        """Return the topic, or None if there is none or it was deleted."""
        ...

    async def delete(self, app_id: str, topic: str, now: int) -> bool:
        """Delete a topic with its messages and subscriptions; False if there is none."""
        ...

    async def list(
        self, app_id: str, *, broadcast_channels: bool, after: str | None, limit: int
    ) -> Page[DeviceTopic]:
        """Return the topics, or the channels, in the order of their names."""
        ...


class Statistics(Protocol):
    """Numbers about an app. They may take long to count; intake goes on meanwhile."""

    async def count_devices(self, app_id: str) -> tuple[int, int]:
        """Return how many devices are valid, and how many are not."""
        ...

    async def count_messages(self, app_id: str, since: int) -> dict[MessageStatus, int]:
        """Return how many messages accepted since a time have each status."""
        ...

    async def count_subscribers(self, app_id: str, limit: int) -> tuple[tuple[str, int], ...]:
        """Return the topics that most valid devices hear, with their number, most first."""
        ...


class Broadcasts(Protocol):
    """Messages to topics, and who has heard them how far."""

    async def subscribe(self, app_id: str, device_id: str, topic: str, now: int) -> int | None:
        """Let a device hear a topic from now on; return its cursor. Again changes nothing.

        Makes the topic if there is none; None if it was deleted. Raises `Conflict` if the device
        hears 1,000 others.
        """
        ...

    async def unsubscribe(self, device_id: str, topic: str) -> bool:
        """End that; False if the device did not hear the topic."""
        ...

    async def subscriptions(self, device_id: str) -> tuple[Subscription, ...]:
        """Return what a device hears, at most 1,000 topics."""
        ...

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: IdempotencyClaim | None = None
    ) -> StoredResponse | int | None:
        """Write a message to its `topic` and return its sequence there, which only grows.

        None if the topic had one with the same id, or was deleted. With `StoragePolicy.NONE`
        nothing is kept but the sequence; with `StoragePolicy.LAST` the messages before it are
        dropped. `once` as in
        `Keys.create`.
        """
        ...

    async def missed(
        self, app_id: str, topic: str, *, cursor: int, now: int, limit: int
    ) -> tuple[Message, ...]:
        """Return the messages of a topic behind a cursor that have not expired, oldest first.

        Of several with the same collapse id only the newest. `sequence` is that of the topic.
        """
        ...

    async def advance(self, device_id: str, topic: str, cursor: int) -> None:
        """Move a device's cursor forward; it never goes back."""
        ...

    async def expire(self, now: int, limit: int) -> int:
        """Delete messages whose time has passed, at most `limit`; return how many."""
        ...
