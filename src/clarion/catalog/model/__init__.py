"""Channels, categories, notification types and templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import msgspec


class Channel(StrEnum):
    """How a notification is delivered."""

    IN_APP = "in_app"
    PUSH = "push"
    EMAIL = "email"
    SMS = "sms"
    WEBHOOK = "webhook"
    STUB = "stub"


# Subject to quiet hours: they alert the user. A webhook calls a server.
INTERRUPTING = frozenset({Channel.PUSH, Channel.EMAIL, Channel.SMS, Channel.STUB})


class Category(StrEnum):
    """The built-in categories: the broad subject of a notification. Apps can have others."""

    SOCIAL = "social"
    SAFETY = "safety"
    SECURITY = "security"
    NEWS = "news"
    MARKETING = "marketing"
    TRANSACTIONAL = "transactional"


# Toggles and quiet hours do not apply to these.
MANDATORY_CATEGORIES = frozenset({Category.SAFETY, Category.SECURITY})


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryDefinition:
    """A category, built-in or an app's own; users can turn it off, unless they must not.

    A type of the category that names no channels has its default channels.
    """

    name: str
    title: str
    description: str | None = None
    default_channels: tuple[Channel, ...] = (Channel.IN_APP,)
    user_can_disable: bool = True
    created_at: int = 0
    updated_at: int = 0


class PriorityName(StrEnum):
    """How urgent a notification is, as the API writes it."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Priority(IntEnum):
    """How urgent a notification is; each priority has its own lane in the queue."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3

    @property
    def label(self) -> PriorityName:
        return PriorityName[self.name]


class DedupeMode(StrEnum):
    """What happens to a duplicate within the window."""

    DROP = "drop"
    AGGREGATE = "aggregate"


class Overflow(StrEnum):
    """What happens to notifications over a limit."""

    DROP = "drop"
    WAIT = "wait"
    DIGEST = "digest"


class Dedupe(msgspec.Struct, frozen=True, kw_only=True):
    """Events with the same dedupe key within the window count as duplicates."""

    window_s: int
    """For how many seconds events with the same dedupe key are duplicates."""
    mode: DedupeMode = DedupeMode.DROP
    """What happens to a duplicate."""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How many notifications of a type a user gets in an hour."""

    per_user_per_hour: int
    """How many notifications of the type a user gets in an hour."""
    overflow: Overflow = Overflow.DROP
    """What happens to those beyond."""


class Digest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Collect, then deliver once: after a window, or daily at a time in the user's time zone."""

    window_s: int | None = None
    """How many seconds to collect, from the first event on."""
    daily_at: str | None = None  # HH:MM
    """The time of day at which to send the digest, HH:MM in the time zone of the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationType:
    """A type of event and how users are notified of it."""

    type: str
    display_name: str
    category: str
    default_channels: tuple[Channel, ...]
    optional_channels: tuple[Channel, ...] = ()  # silent if they have no template
    priority: Priority = Priority.MEDIUM
    user_can_disable: bool = True
    is_active: bool = True
    rate_limit: RateLimit | None = None
    dedupe: Dedupe | None = None
    digest: Digest | None = None
    data_schema: dict[str, object] | None = None  # JSON Schema of an event's `data`
    # Whether what waited is sent although the user has read the notification meanwhile.
    send_when_read: bool = False


class Form(StrEnum):
    """What the body of a template is. Values are escaped in HTML, and in the HTML of MJML."""

    TEXT = "text"
    HTML = "html"
    MJML = "mjml"


_FORM = re.compile(r"\s*(?:(?P<mjml><mjml)|(?P<html><))", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The text of a type for one channel in one language. A change creates a new version."""

    type: str
    channel: Channel
    language: str
    version: int
    subject: str | None
    body: str
    variables: tuple[str, ...]
    created_at: int

    @property
    def form(self) -> Form:
        """Only for email is a body more than text: it begins with `<mjml`, or with another `<`.

        It depends on the template alone, not on the values.
        """
        found = _FORM.match(self.body) if self.channel is Channel.EMAIL else None
        return Form.TEXT if found is None else Form(found.lastgroup or "")


# The built-in type of publications to a topic, for the users who follow it.
PUBLISHED = "TOPIC_MESSAGE"
# What a template can use in addition to the data of the event.
GIVEN = frozenset({"actor", "target", "user", "count"})


class RenderedText(msgspec.Struct, frozen=True):
    """A rendered template. The subject is the title of a push or the subject of an email."""

    subject: str | None
    body: str
    is_html: bool = False
    language: str | None = None  # of the template


def build_context(
    data: Mapping[str, object],
    *,
    actor: dict[str, object] | None = None,
    target: dict[str, object] | None = None,
    user: dict[str, object] | None = None,
    count: int = 1,
) -> dict[str, object]:
    """Return the values that a template can use. An empty snippet counts as missing."""
    context = {**data, "actor": actor, "target": target, "user": user, "count": count}
    # An absent value is undefined, not empty: showing it is an error.
    for name in ("actor", "target", "user", "snippet"):
        if not context.get(name, True):
            del context[name]
    return context
