"""The words of the house as frozen types: apps, keys, callers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Scope(StrEnum):
    """What an API key may do. A key holds one or more; `*` at creation means all of them."""

    EVENTS_WRITE = "events:write"
    EVENTS_READ = "events:read"
    USERS_WRITE = "users:write"
    USERS_READ = "users:read"
    DEVICES_WRITE = "devices:write"
    DEVICES_READ = "devices:read"
    TOPICS_WRITE = "topics:write"
    TOPICS_READ = "topics:read"
    TYPES_WRITE = "types:write"
    TYPES_READ = "types:read"
    STATS_READ = "stats:read"
    AUDIT_READ = "audit:read"
    KEYS_WRITE = "keys:write"
    KEYS_READ = "keys:read"


ALL_SCOPES = frozenset(Scope)


class UserTokenAlgorithm(StrEnum):
    """How an app signs the tokens of its users. One app, one algorithm: no confusion of keys."""

    HS256 = "HS256"
    ES256 = "ES256"
    EDDSA = "EdDSA"


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An application that sends through Clarion; everything but administrators belongs to one."""

    id: str
    name: str
    bundle_id: str
    team_id: str
    user_token_algorithm: UserTokenAlgorithm
    user_token_key: bytes  # sealed: the shared secret (HS256) or the public key as PEM
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKey:
    """The public half of a key with which an APNs provider of an app signs its tokens."""

    app_id: str
    key_id: str
    team_id: str
    public_key: str  # PEM
    created_at: int
    revoked_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A secret key of an app. Only the hash of its secret is ever stored."""

    id: str
    app_id: str
    label: str
    scopes: frozenset[Scope]
    secret_hash: bytes
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def is_live(self, now: int) -> bool:
        """Whether the key opens the door at `now`."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Role(StrEnum):
    """What an administrator may do."""

    ADMIN = "admin"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Administrator:
    """A person who runs Clarion."""

    id: str
    username: str
    password_hash: str
    role: Role
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCaller:
    """An application server, known by one of its app's API keys."""

    app_id: str
    key_id: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCaller:
    """An end user's client, known by a token that the app signed."""

    app_id: str
    user_id: str


Caller = AppCaller | UserCaller


class Platform(StrEnum):
    """What a device's token is for. `clarion` devices hold their connection to us."""

    IOS = "ios"
    ANDROID = "android"
    WEB = "web"
    CLARION = "clarion"


class DeviceEnd(StrEnum):
    """Why a device's token is no longer valid."""

    UNINSTALLED = "uninstalled"
    TOKEN_EXPIRED = "token_expired"
    USER_OPT_OUT = "user_opt_out"
    REVOKED = "revoked"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """What a device says about itself; all of it may be unknown."""

    user_id: str | None = None
    model: str | None = None
    os_version: str | None = None
    app_version: str | None = None
    language: str | None = None
    timezone: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of an app. Its token and its secret are known by their hashes alone."""

    id: str
    app_id: str
    token_hash: bytes
    secret_hash: bytes
    platform: Platform
    details: DeviceDetails
    created_at: int
    last_seen_at: int
    invalidated_at: int | None = None
    invalidation_reason: DeviceEnd | None = None

    @property
    def is_valid(self) -> bool:
        """Whether messages may be sent to it."""
        return self.invalidated_at is None


class PushPriority(IntEnum):
    """How soon a device should hear of a message, in the numbers of APNs."""

    IMMEDIATE = 10
    CONSIDERATE = 5
    LOW = 1


class MessageStatus(StrEnum):
    """The life of a message to a device.

    pending (handed to a connection) or queued (stored, the device is away)
        → delivered (acknowledged) | failed | expired
    """

    PENDING = "pending"
    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"


class MessageReason(StrEnum):
    """Why a message is where it is."""

    ACKNOWLEDGED = "acknowledged"
    DEVICE_OFFLINE = "device_offline"
    COLLAPSED = "collapsed"
    TTL_PASSED = "ttl_passed"
    NOT_STORED = "not_stored"
    OVERFLOW = "overflow"
    UNREGISTERED = "unregistered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to one device."""

    id: str
    device_id: str
    app_id: str
    sequence: int
    payload: bytes  # a JSON object, as it was sent
    priority: PushPriority
    collapse_id: str | None
    is_stored: bool  # kept for a device that is away; False: one attempt
    created_at: int
    expires_at: int
    topic: str | None = None  # set when it was sent to a topic


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """A message as the history shows it."""

    id: str
    device_id: str
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
    reason: str
    invalidated_at: int


class Keeps(IntEnum):
    """How many messages of a topic wait for devices that are away."""

    NONE = 0
    LAST = 1
    ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTopic:
    """A topic that devices hear, or an APNs broadcast channel."""

    app_id: str
    topic: str
    is_channel: bool
    keeps: Keeps
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A device hears a topic, and has acknowledged it up to the cursor."""

    topic: str
    cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """What makes a request happen once: its key, what it said, and what it is answered."""

    app_id: str
    key: str
    fingerprint: bytes  # of method, path and body: the same key with another request is refused
    answer: bytes
    now: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer that the first request with the same idempotency key was given."""

    answer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a limit leaves a caller."""

    limit: int
    remaining: int
    reset_s: int
    is_exceeded: bool


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list and the cursor of the next, if there is one."""

    items: tuple[T, ...]
    next: str | None
