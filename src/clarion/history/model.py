"""What happened: a notification to a user, its deliveries over channels, and the attempts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from clarion.catalog.model import Channel, Priority
from clarion.fields import NO_CONTROLS

_Short = Annotated[str, msgspec.Meta(max_length=256, extra_json_schema={"pattern": NO_CONTROLS})]


class ReasonCode(StrEnum):
    """Why a channel was or was not used. One closed list for API, log, metrics and dashboard."""

    ALLOWED = "allowed"
    MANDATORY = "mandatory"
    USER_UNKNOWN = "user_unknown"
    USER_INACTIVE = "user_inactive"
    EXPIRED = "expired"
    ALREADY_READ = "already_read"
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
    SENT_TO_TOPIC = "sent_to_topic"
    DUPLICATE = "duplicate"
    FOLDED_INTO_UNREAD = "folded_into_unread"
    LIMIT_REACHED = "limit_reached"
    LIMIT_WAITS = "limit_waits"
    LIMIT_JOINS_DIGEST = "limit_joins_digest"
    QUIET_HOURS = "quiet_hours"
    JOINS_DIGEST = "joins_digest"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    REJECTED = "rejected"
    ADDRESS_GONE = "address_gone"
    UNDELIVERED = "undelivered"


class Actor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who caused an event."""

    id: _Short | None = None
    """The id of who caused the event, in your application."""
    name: _Short | None = None
    """The name, as texts show it."""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The object that an event is about."""

    id: _Short | None = None
    """The id of the object, in your application."""
    type: _Short | None = None
    """What kind of object it is, like `post`."""


class PublishedTo(msgspec.Struct, frozen=True):
    """The message to a topic by which devices get the event that are subscribed to it."""

    topic: str
    message_id: str


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an event, which its notifications share."""

    data: dict[str, object] = msgspec.field(default_factory=dict)
    actor: Actor | None = None
    target: Target | None = None
    channels: tuple[Channel, ...] | None = None
    deeplink: str | None = None
    image_url: str | None = None
    # A push with the same one replaces the earlier one on the device.
    collapse_key: str | None = None
    published_to: PublishedTo | None = None


class DeliveryStatus(StrEnum):
    """The state of a notification on one channel."""

    HELD = "held"  # waits until a time
    COLLECTED = "collected"  # waits for its digest
    QUEUED = "queued"  # to be sent now
    SENT = "sent"  # accepted by a provider that will report what became of it
    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    DROPPED = "dropped"  # refused by a rule
    FOLDED = "folded"  # part of another notification


class PastDecision(msgspec.Struct, frozen=True):
    """An earlier decision for a channel."""

    at: int
    status: DeliveryStatus
    reason: ReasonCode
    rule: str
    until: int | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The latest decision for a notification on one channel, and the result of sending it."""

    notification_id: str
    channel: Channel
    app_id: str
    user_id: str
    status: DeliveryStatus
    reason: ReasonCode
    rule: str
    until: int | None = None
    past_decisions: tuple[PastDecision, ...] = ()
    digest: str | None = None
    count: int = 1
    attempt_count: int = 0
    provider: str | None = None
    sent_at: int | None = None
    delivered_at: int | None = None
    last_attempt_at: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    decided_at: int

    @property
    def decision(self) -> PastDecision:
        """The latest decision, as it is kept when the next one is made."""
        return PastDecision(self.decided_at, self.status, self.reason, self.rule, self.until)

    @property
    def waiting_job_id(self) -> str:
        """The job that decides it again, while it is held or collected."""
        return self.digest or f"{self.notification_id}/held"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to deliver; `device_id` is empty for channels without devices."""

    notification_id: str
    channel: Channel
    number: int
    device_id: str = ""
    provider: str | None = None
    status: str
    provider_response: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    attempted_at: int


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an event for one user; stored even if no channel sends it."""

    app_id: str
    user_id: str
    id: str
    event_id: str
    type: str
    category: str
    priority: Priority
    title: str | None
    body: str
    content: Content
    count: int = 1
    is_shown: bool
    folded_into: str | None = None
    sequence: int = 0
    read_at: int | None = None
    dismissed_at: int | None = None
    expires_at: int | None = None
    created_at: int


class NotificationStatus(StrEnum):
    """The summary of a notification's deliveries; derived, never stored."""

    CREATED = "created"
    HELD = "held"  # some are held or collected, and none is to be sent now
    QUEUED = "queued"
    PROCESSING = "processing"
    DELIVERED = "delivered"
    PARTIALLY_DELIVERED = "partially_delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    FOLDED = "folded"
