"""What notifications for people are made of: channels, categories, types, verdicts and reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
MANDATORY_CATEGORIES = frozenset({Category.SAFETY, Category.SECURITY})


class Priority(IntEnum):
    """How much it matters; each has a lane of its own."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


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


# What a template sees beside the data of the event.
GIVEN = frozenset({"actor", "target", "user", "count"})


@dataclass(frozen=True, slots=True)
class RenderedText:
    """What a person reads; a subject is the title of a push and the subject of a mail."""

    subject: str | None
    body: str


def build_context(
    data: Mapping[str, object],
    *,
    actor: dict[str, object] | None = None,
    target: dict[str, object] | None = None,
    user: dict[str, object] | None = None,
    count: int = 1,
) -> dict[str, object]:
    """Return what a template sees. A snippet without words counts as none."""
    values = {**data, "actor": actor, "target": target, "user": user, "count": count}
    # What is not there is missing, not empty: an error where it is shown.
    for name in ("actor", "target", "user", "snippet"):
        if not values.get(name, True):
            del values[name]
    return values
