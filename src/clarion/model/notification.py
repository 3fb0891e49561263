"""What notifications for people are made of: channels, categories, types, verdicts and reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Channel(StrEnum):
    """A way to reach a person."""

    IN_APP = "in_app"
    PUSH = "push"
    EMAIL = "email"
    SMS = "sms"
    WEBHOOK = "webhook"
    STUB = "stub"


# Those that make a sound at night. A webhook wakes a server, not a person.
INTERRUPTING = frozenset({Channel.PUSH, Channel.EMAIL, Channel.SMS, Channel.STUB})


class Category(StrEnum):
    """What a notification is about, in the large."""

    SOCIAL = "social"
    SAFETY = "safety"
    SECURITY = "security"
    NEWS = "news"
    MARKETING = "marketing"
    TRANSACTIONAL = "transactional"


# These ignore toggles and quiet hours.
ALWAYS_HEARD = frozenset({Category.SAFETY, Category.SECURITY})


class Priority(IntEnum):
    """How much it matters; each has a lane of its own."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


class ReasonCode(StrEnum):
    """Why a channel was or was not used. One closed list for API, log, metrics and dashboard."""

    NOTHING_AGAINST_IT = "nothing_against_it"
    ALWAYS_HEARD = "always_heard"
    USER_UNKNOWN = "user_unknown"
    USER_INACTIVE = "user_inactive"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    TYPE_INACTIVE = "type_inactive"
    CHANNEL_UNAVAILABLE = "channel_unavailable"
    NO_TEMPLATE = "no_template"
    NO_ADDRESS = "no_address"
    CATEGORY_OFF = "category_off"
    CHANNEL_OFF = "channel_off"
    SMS_NOT_OPTED_IN = "sms_not_opted_in"
    NO_DEVICE = "no_device"
    DEVICES_OFF = "devices_off"
    DUPLICATE = "duplicate"
    FOLDED_INTO_UNREAD = "folded_into_unread"
    LIMIT_REACHED = "limit_reached"
    LIMIT_WAITS = "limit_waits"
    LIMIT_JOINS_DIGEST = "limit_joins_digest"
    QUIET_HOURS = "quiet_hours"
    JOINS_DIGEST = "joins_digest"
    TRIES_EXHAUSTED = "tries_exhausted"
    REJECTED = "rejected"
    ADDRESS_GONE = "address_gone"


class DedupeMode(StrEnum):
    """What becomes of a repeat within the window."""

    DROP = "drop"
    AGGREGATE = "aggregate"


class Overflow(StrEnum):
    """What becomes of what is over a limit."""

    DROP = "drop"
    WAIT = "wait"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """Repeats with the same key within the window are one."""

    window_s: int
    mode: DedupeMode = DedupeMode.DROP


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How many of a type a person gets in an hour."""

    per_user_per_hour: int
    overflow: Overflow = Overflow.DROP


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Collect, then deliver once: so long after the first, or daily by the person's own clock."""

    window_s: int | None = None
    daily_at: str | None = None  # HH:MM


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationType:
    """A kind of event and how people hear of it."""

    type: str
    display_name: str
    category: Category
    default_channels: tuple[Channel, ...]
    priority: Priority = Priority.MEDIUM
    user_can_disable: bool = True
    is_active: bool = True
    rate_limit: RateLimit | None = None
    dedupe: Dedupe | None = None
    digest: Digest | None = None
    data_schema: dict[str, object] | None = None  # JSON Schema of an event's `data`


# 22:00 to 07:00, by the hour of the person's own clock.
DEFAULT_QUIET_HOURS = tuple(hour >= 22 or hour < 7 for hour in range(24))  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a person has set; what is not here has its default."""

    quiet_hours: tuple[bool, ...] | None = None
    categories: dict[Category, bool] = field(default_factory=dict)
    types: dict[str, dict[Channel, bool]] = field(default_factory=dict)


class UserStatus(StrEnum):
    """Whether a person hears anything at all."""

    ACTIVE = "active"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person of an app."""

    app_id: str
    id: str
    name: str | None = None
    email: str | None = None
    phone: str | None = None
    language: str = "en"
    timezone: str = "UTC"
    status: UserStatus = UserStatus.ACTIVE
    tags: tuple[str, ...] = ()
    attributes: dict[str, object] = field(default_factory=dict)
    preferences: Preferences = field(default_factory=Preferences)
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The words of a type for one channel in one language. A change is a new version."""

    type: str
    channel: Channel
    language: str
    version: int
    subject: str | None
    body: str
    variables: tuple[str, ...]
    created_at: int
