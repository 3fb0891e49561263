"""The ports of the push gateway: devices, messages, topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.push.model import (
    Device,
    DeviceDetails,
    DeviceFilter,
    DevicePreferences,
    Feedback,
    InvalidationReason,
    Message,
    MessageContent,
    MessageReason,
    MessageRecord,
    MessageStatus,
    PushPriority,
    StoragePolicy,
    Subscription,
    SubscriptionState,
    Topic,
)


class Devices(Protocol):
    """The registry of devices. Within an app, a token belongs to one device.

    Apps know nothing of each other: several may have a device with the same token.
    """

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a device; False if the app has one with its token. `once` as in `Keys.create`."""

    async def refresh(
        self, device: Device, *, is_by_app: bool, proof: bytes = b""
    ) -> Device | None:
        """Refresh the device of the app that has this token, and return it as it is now.

        It keeps its id, secret and time of creation, takes the new details (a value that is None
        stays as it was), and is valid again. If it has an address it takes the new one; one
        without stays without. None, with nothing changed, if there is none; or if it is not of the
        same user, the app itself does not ask for it, and `proof` is not the hash of its secret.
        If its user changes, its waiting messages fail, its subscriptions are deleted and its
        preferences reset; if a user took it, it takes the new secret too.
        """

    async def set_secret(self, app_id: str, device_id: str, secret_hash: bytes) -> bool:
        """Replace the secret of a device; False if the app has no such device."""

    async def update(
        self, app_id: str, device_id: str, details: DeviceDetails, now: int
    ) -> Device | None:
        """Update the details that are not None; return None if the app has no such device.

        If its user changes, its waiting messages fail, its subscriptions are deleted and its
        preferences reset.
        """

    async def set_preferences(
        self,
        app_id: str,
        device_id: str,
        edit: Callable[[DevicePreferences], DevicePreferences],
    ) -> Device | None:
        """Edit the preferences of a device; return None if the app has no such device.

        Concurrent edits do not overwrite each other: `edit` may be called several times.
        """

    async def find(self, app_id: str, token_hash: bytes) -> Device | None:
        """Return the app's device with this token, valid or not, or None."""

    async def authenticate(self, token_hash: bytes, secret_hash: bytes) -> Device | None:
        """Return the valid device of any app with this token and secret, or None.

        None also if its user is inactive.
        """

    async def get(self, app_id: str, device_id: str) -> Device | None:
        """Return the device, valid or not, or None."""

    async def find_many(self, app_id: str, device_ids: Collection[str]) -> dict[str, Device]:
        """Return those devices that exist, valid or not, by id, in one read."""

    async def list(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[Device]:
        """Return the devices of a user, valid or not, in the order of their ids."""

    async def list_all(
        self, app_id: str, chosen: DeviceFilter, *, after: str | None, limit: int
    ) -> Page[Device]:
        """Return the devices of an app for which a filter holds, in the order of their ids.

        A page may have fewer than `limit`, even none, and a cursor: it reads a bounded part.
        """

    async def valid_of_user(self, app_id: str, user_id: str, limit: int) -> tuple[Device, ...]:
        """Return a user's valid devices, most recently seen first."""

    async def valid_of_users(
        self, app_id: str, user_ids: Collection[str], limit: int
    ) -> dict[str, tuple[Device, ...]]:
        """Return the valid devices of users, in one read, at most `limit` of each user.

        By user id, most recently seen first; users without one are left out.
        """

    async def invalid_of_user(
        self, app_id: str, user_id: str, *, keep: int, limit: int
    ) -> tuple[str, ...]:
        """Return the ids of a user's invalid devices but the `keep` last ones, at most `limit`."""

    async def touch(self, connected_at: Mapping[str, int], now: int) -> None:
        """Set when the devices were last seen, 500 devices a commit.

        Each is given with the time at which a connection of it was opened; the newest is kept.
        """

    async def invalidate(
        self,
        app_id: str,
        device_id: str,
        reason: InvalidationReason,
        now: int,
        address: bytes | None = None,
    ) -> Device | None:
        """Invalidate a device: fail the messages that wait for it, add its token to the feedback.

        With the sealed `address` that something was sent to: only if the device still has it, and
        has not registered again since it was read. Returns the device, or None if the app has no
        such device that is valid.
        """

    async def find_old(self, before: int, limit: int) -> tuple[tuple[str, str], ...]:
        """Return devices invalidated before a time, at most `limit`, as app and device id."""

    async def prune_former_users(self, before: int, limit: int) -> int:
        """Forget whose devices were until before a time, at most `limit`; return how many."""

    async def delete(self, app_id: str, device_id: str, now: int) -> Device | None:
        """Delete a device and its subscriptions; add its token to the feedback if it was valid.

        Its messages stay in the history. Returns the deleted device, or None.
        """


class FeedbackList(Protocol):
    """Tokens that are no longer valid, for providers to stop using. Outlives the devices."""

    async def list(
        self, app_id: str, *, since: int, after: str | None, limit: int
    ) -> Page[Feedback]:
        """Return the app's entries invalidated at `since` or later, oldest first.

        `InvalidFields` if `after` is not the `next` of a page; so in `History.list`.
        """


class Messages(Protocol):
    """Messages to devices that wait to be delivered."""

    async def add(
        self, message: Message, status: MessageStatus, reason: MessageReason | None
    ) -> bool:
        """Store a message once; False if the device had one with the same id within 24 hours.

        Of the device's messages that wait and have the same collapse id, all but the newest expire
        as `collapsed`: usually the older ones, or this one if a newer one was stored before it.
        Messages of notifications collapse only such, and others only others.

        When the last message of a notification ends, whichever method ends it, so does its push
        delivery if that is `sent`: as `delivered` if a device acknowledged one, else as `expired`
        or `failed`.
        """

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

    async def count_waiting(self, device_id: str, *, now: int, limit: int) -> int:
        """Return how many stored messages wait and have not expired, counted up to `limit`."""

    async def find_waiting(self, device_ids: Collection[str], now: int) -> frozenset[str]:
        """Return for which of these devices, at most 500, stored messages wait, in one read."""

    async def find_recent(
        self, app_ids: Collection[str], *, after: int, now: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """Return sequence and device of what waits after a sequence, in this order, in one read.

        Of the devices of some apps; at most `limit`.
        """

    async def acknowledge(
        self, pairs: Sequence[tuple[str, str]], now: int, notifying: Sequence[Message] = ()
    ) -> None:
        """Mark messages delivered, each given as device and message id.

        Ids that are not the device's, or do not wait, change nothing. Those that are part of
        notifications are given whole, as `notifying`: their deliveries and the attempts of their
        devices are delivered, too, in the same unit.
        """

    async def fail(self, device_id: str, message_id: str, now: int) -> None:
        """Fail a message as `unregistered`; if it does not wait, nothing is changed."""

    async def cancel(self, device_id: str, message_id: str, now: int) -> bool:
        """Expire a message as `cancelled`; False if it does not wait, or is of a notification."""

    async def trim(self, device_id: str, keep: int, now: int) -> int:
        """Expire as `overflow` what waits beyond `keep`: lowest priority first, then oldest.

        Returns how many were expired.
        """

    async def expire(self, now: int, limit: int) -> int:
        """Expire messages that are past `expires_at`, at most `limit`; return how many."""


class Gateway(Protocol):
    """Sends messages to devices of our own gateway, for those who store them in a unit of theirs.

    First make the message, then store it with `add_steps` of `push/sql/messages.py`, and announce
    it after the commit.
    """

    def make_message(
        self,
        device: Device,
        content: MessageContent,
        message_id: str,
        notification_id: str | None = None,
    ) -> tuple[Message, MessageStatus, MessageReason | None]:
        """Return a message with the status and the reason that it is stored with."""

    async def announce(
        self, message: Message, status: MessageStatus, *, is_repeat: bool = False
    ) -> None:
        """Offer a stored message to the device's connection, and apply the limit of what is stored.

        A repeat may have been delivered before: the connection reads from the store if it waits.
        """

    async def announce_to_topic(self, message: Message) -> None:
        """Start to offer a stored message to the subscribers of its topic that are connected."""


class DeviceRegistry(Protocol):
    """Ends devices that other push services report gone."""

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


class History(Protocol):
    """All messages to devices with their status. Outlives the devices."""

    async def prune(self, app_id: str, before: int, limit: int) -> int:
        """Delete finished messages accepted before a time, at most `limit`; return how many."""

    async def list(
        self, app_id: str, *, device_id: str, after: str | None, limit: int
    ) -> Page[MessageRecord]:
        """Return the messages of a device, newest first."""

    async def get(self, app_id: str, device_id: str, message_id: str) -> MessageRecord | None:
        """Return one message, or None."""


class Topics(Protocol):
    """Topics that users follow and devices subscribe to, APNs broadcast channels among them."""

    async def create(self, topic: Topic) -> bool:
        """Create a topic; False if one of that name exists, or was deleted and not pruned yet."""

    async def put(self, topic: Topic) -> tuple[Topic, bool] | None:
        """Create a topic, or open or close it; return it, and whether it is new.

        Its followers and subscriptions stay. None if it was deleted, or is a broadcast channel.
        """

    async def get(self, app_id: str, topic: str) -> Topic | None:
        """Return the topic, or None if it does not exist or was deleted."""

    async def delete(self, app_id: str, topic: str, now: int) -> bool:
        """Delete a topic, then its messages and subscriptions; False if it does not exist.

        From the first commit on it is deleted for everyone. The rest is deleted in small commits:
        what an interruption leaves is deleted by the next call, or before the topic is pruned.
        """

    async def prune_deleted(self, before: int, limit: int) -> int:
        """Forget topics that were deleted before a time, at most `limit`; return how many.

        A topic of the same name may be created then. Its sequence starts again at 1, which affects
        no device: the subscriptions to the old one were deleted with it.
        """

    async def list(
        self, app_id: str, *, broadcast_channels: bool, after: str | None, limit: int
    ) -> Page[Topic]:
        """Return the topics, or the broadcast channels, in the order of their names."""


class Statistics(Protocol):
    """Statistics of an app. Counting may take long and holds up nothing else."""

    async def count_devices(self, app_id: str) -> tuple[int, int]:
        """Return how many devices are valid, and how many are not."""

    async def count_messages(self, app_id: str, since: int) -> dict[MessageStatus, int]:
        """Return how many messages accepted since a time have each status."""

    async def count_subscribers(self, app_id: str, limit: int) -> tuple[tuple[str, int], ...]:
        """Return topics with their number of valid subscribed devices, largest number first."""

    async def count_pending(self, limit: int) -> int:
        """Return how many messages of all apps wait for their devices, counted up to a limit."""


class Broadcasts(Protocol):
    """Messages to topics, the subscriptions of devices and their cursors.

    A message to a topic is written once, however many devices are subscribed.
    """

    async def subscribe(self, app_id: str, device_id: str, topic: str, now: int) -> int | None:
        """Subscribe a device to a topic from now on; return its cursor. A repeat changes nothing.

        Creates the topic if it does not exist; returns None if it was deleted. `Conflict` if the
        device is subscribed to 1,000 other topics.
        """

    async def unsubscribe(self, device_id: str, topic: str) -> bool:
        """Unsubscribe a device; False if it was not subscribed."""

    async def subscriptions(self, device_id: str) -> tuple[Subscription, ...]:
        """Return the subscriptions of a device, at most 1,000."""

    async def find_subscriptions(
        self, app_id: str, device_ids: Collection[str]
    ) -> dict[str, dict[str, SubscriptionState]]:
        """Return the subscriptions of an app's devices by device and topic, in one read.

        Devices without one are left out, and topics that were deleted.
        """

    async def find_last_sequences(self, app_id: str, topics: Collection[str]) -> dict[str, int]:
        """Return the sequence of the last message to each of these topics of an app, in one read.

        Topics that were deleted are left out.
        """

    async def find_reached(
        self, app_id: str, messages: Mapping[str, str], device_ids: Collection[str]
    ) -> frozenset[tuple[str, str]]:
        """Return which of these devices get which messages, as pairs of their ids, in one read.

        Of the messages the topics are given. A device gets those that were published after it
        subscribed, and have not expired.
        """

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: IdempotencyClaim | None = None
    ) -> StoredResponse | int | None:
        """Write a message to its `topic` and return its sequence there, which only grows.

        None if the topic had one with the same id, or was deleted. With `StoragePolicy.NONE`
        only the sequence is stored; with `StoragePolicy.LAST` older messages are deleted. `once`
        as in `Keys.create`.
        """

    async def missed(
        self, app_id: str, topic: str, *, cursor: int, now: int, limit: int
    ) -> tuple[Message, ...]:
        """Return the messages of a topic after a cursor that have not expired, oldest first.

        Of several with the same collapse id only the newest. `sequence` is that of the topic.
        """

    async def advance(self, device_id: str, topic: str, cursor: int) -> None:
        """Move a device's cursor forward; it never goes back."""

    async def advance_many(self, cursors: Sequence[tuple[str, str, int]]) -> None:
        """Do that for several cursors: each is a device, a topic and a sequence."""

    async def expire(self, now: int, limit: int) -> int:
        """Delete messages that are past `expires_at`, at most `limit`; return how many."""
