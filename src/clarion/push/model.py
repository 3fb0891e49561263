"""The types of the push gateway: devices, messages to them, topics, feedback."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple


class Platform(StrEnum):
    """What a device's token is for. `clarion` devices hold their connection to us."""

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
    """What is known about a device; each value may be missing."""

    user_id: str | None = None
    model: str | None = None
    os_version: str | None = None
    app_version: str | None = None
    language: str | None = None
    timezone: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of an app. Only the hashes of its token and its secret are stored."""

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

    @property
    def is_valid(self) -> bool:
        """Whether messages may be sent to it."""
        return self.invalidated_at is None


def address_context(app_id: str, device_id: str) -> str:
    """Return what the address of a device is sealed for."""
    return f"device/{app_id}/{device_id}"


class PushPriority(IntEnum):
    """How soon a device should get a message, in the numbers of APNs."""

    IMMEDIATE = 10
    CONSIDERATE = 5
    LOW = 1


class MessageStatus(StrEnum):
    """The states of a message to a device.

    pending (the device was connected) or queued (the device was offline)
        → delivered (acknowledged) | failed | expired
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
    TTL_PASSED = "ttl_passed"
    NOT_STORED = "not_stored"
    OVERFLOW = "overflow"
    UNREGISTERED = "unregistered"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
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
class DeviceTopic:
    """A topic that devices subscribe to, or an APNs broadcast channel."""

    app_id: str
    topic: str
    is_broadcast_channel: bool
    storage_policy: StoragePolicy
    is_open: bool = False  # users may subscribe their devices; else only the app may
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A device is subscribed to a topic, and has acknowledged its messages up to the cursor."""

    topic: str
    cursor: int
