"""The types of the push gateway: devices, messages to them, topics, feedback."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

import msgspec

from clarion.errors import TopicNotOpen
from clarion.people.model.quiet_hours import QuietHours

# Our own gateway, as the provider of an attempt. No other provider may have this name.
GATEWAY = "gateway"
# The namespace of the ids of messages that are part of a notification.
_MESSAGE_IDS = uuid.UUID("5a4d1f6e-3c5b-4b52-9d0c-8f3c1b7e2a90")


class Platform(StrEnum):
    """What a device's token is for. `clarion` devices connect to Clarion directly."""

    IOS = "ios"
    ANDROID = "android"
    WEB = "web"
    CLARION = "clarion"


class InvalidationReason(StrEnum):
    """Why a device's token is no longer valid."""

    UNINSTALLED = "uninstalled"
    TOKEN_EXPIRED = "token_expired"
    USER_OPT_OUT = "user_opt_out"
    REVOKED = "revoked"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """The details of a device; each may be missing."""

    user_id: str | None = None
    model: str | None = None
    os_version: str | None = None
    app_version: str | None = None
    language: str | None = None
    timezone: str | None = None
    label: str | None = None


class DevicePreferences(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The preferences set for one device; all others have their default.

    `quiet_hours` are in the time zone of the device, or of its user if it has none. They apply in
    addition to those of the user.
    """

    enabled: bool = True
    categories: dict[str, bool] = {}
    types: dict[str, bool] = {}
    quiet_hours: QuietHours | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of an app. Only the hashes of its token and its secret are stored.

    `address` is what another push service needs to reach it (the token of APNs or FCM, or a Web
    Push subscription), sealed for `address_context`. A device of any platform without one is
    reached by our own gateway. Each registration seals the address again. `connected_at` is when
    its newest connection was opened, as of the last write.
    """

    id: str
    app_id: str
    token_hash: bytes
    secret_hash: bytes
    platform: Platform
    details: DeviceDetails
    created_at: int
    last_seen_at: int
    invalidated_at: int | None = None
    invalidation_reason: InvalidationReason | None = None
    address: bytes | None = field(default=None, repr=False)
    preferences: DevicePreferences = field(default_factory=DevicePreferences)
    connected_at: int | None = None

    @property
    def address_context(self) -> str:
        """The context of a sealed address: the app, and the hash for finding it."""
        return address_context(self.app_id, self.token_hash)

    @property
    def is_valid(self) -> bool:
        """Whether messages may be sent to it."""
        return self.invalidated_at is None


class DeviceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a list of devices; None: any."""

    user_id: str | None = None
    platform: Platform | None = None
    is_valid: bool | None = None


def address_context(app_id: str, token_hash: bytes) -> str:
    """Return what the address of a device is sealed for."""
    return f"device/{app_id}/{bytes(token_hash).hex()}"


class PushPriority(IntEnum):
    """How soon a device should get a message, in the numbers of APNs."""

    IMMEDIATE = 10
    CONSIDERATE = 5
    LOW = 1


class MessageStatus(StrEnum):
    """The states of a message to a device.

    First `pending` (the device was connected) or `queued` (it was offline); then `delivered`
    (acknowledged), `failed` or `expired`.
    """

    PENDING = "pending"
    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"


class MessageReason(StrEnum):
    """Why a message has its status."""

    ACKNOWLEDGED = "acknowledged"
    DEVICE_OFFLINE = "device_offline"
    COLLAPSED = "collapsed"
    CANCELLED = "cancelled"
    TTL_PASSED = "ttl_passed"
    NOT_STORED = "not_stored"
    OVERFLOW = "overflow"
    UNREGISTERED = "unregistered"


class MessageContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to a device, and how."""

    priority: PushPriority
    collapse_id: str | None
    is_stored: bool
    expires_at: int
    payload: bytes


class Message(NamedTuple):
    """One message to one device or to a topic.

    A tuple, because every push creates one: creating a frozen dataclass takes three times as long.
    """

    id: str
    app_id: str
    payload: bytes  # a JSON object, exactly as it was sent
    priority: PushPriority
    is_stored: bool  # stored for an offline device; False: one attempt
    created_at: int
    expires_at: int
    device_id: str = ""  # empty when it was sent to a topic
    sequence: int = 0
    collapse_id: str | None = None
    topic: str | None = None  # set when it was sent to a topic
    notification_id: str | None = None  # set when it is part of a notification
    trace: str | None = None  # the context of the step that made it, if that is traced


def make_message_id(notification_id: str, device_id: str) -> str:
    """Return the id of a notification's message to a device: always the same."""
    return str(uuid.uuid5(_MESSAGE_IDS, f"{notification_id}/{device_id}"))


class StoredMessage(NamedTuple):
    """A message to a device, as it is first stored."""

    message: Message
    status: MessageStatus
    reason: MessageReason | None


class MessageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the history shows it."""

    id: str
    device_id: str
    sequence: int
    priority: PushPriority
    collapse_id: str | None
    status: MessageStatus
    reason: MessageReason | None
    created_at: int
    expires_at: int
    updated_at: int
    payload: bytes


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is no longer valid."""

    app_id: str
    token_hash: bytes
    reason: InvalidationReason
    invalidated_at: int


class StoragePolicy(IntEnum):
    """How many messages of a topic are stored for offline devices."""

    NONE = 0
    LAST = 1
    ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that users follow and devices subscribe to, or an APNs broadcast channel."""

    app_id: str
    topic: str
    is_broadcast_channel: bool
    storage_policy: StoragePolicy
    # Users may follow it and subscribe their devices; otherwise only the app may do that.
    is_open: bool = False
    created_at: int


def require_open(topic: Topic | None, name: str) -> None:
    """Raise `TopicNotOpen` if users may not follow a topic themselves.

    Also if it does not exist, so that users cannot find out the names of topics.
    """
    if topic is None or not topic.is_open:
        raise TopicNotOpen(
            "Users may follow and subscribe to open topics only. The app can do it for them with "
            f'an API key, or open the topic for all with PUT /v1/topics/{name} {{"open": true}}.'
        )


class SubscriptionState(NamedTuple):
    """The cursor of a subscription, and the last sequence of its topic."""

    cursor: int
    last_sequence: int


class TopicSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A device is subscribed to a topic, and has acknowledged its messages up to the cursor."""

    topic: str
    cursor: int


# Sorts after every sequence of a message: the device is still the user's.
UNTIL_NOW = (1 << 63) - 1


class OwnedDevice(msgspec.Struct, frozen=True, array_like=True):
    """A device, and which messages to it were sent to the user: by their sequence."""

    id: str
    token_hash: bytes
    since: int = 0
    until: int = UNTIL_NOW


def hash_token(token: str) -> bytes:
    """Return the hash under which a device's token is stored; capitals make no difference."""
    return hashlib.sha256(token.lower().encode()).digest()


def hash_secret(secret: str) -> bytes:
    """Return the hash under which a device's secret is stored."""
    return hashlib.sha256(secret.encode()).digest()
