"""What happened, for whom, the work that waits for it, and what people were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from clarion.catalog.model import Category, Channel, Priority


class ReasonCode(StrEnum):
    """Why a channel was or was not used. One closed list for API, log, metrics and dashboard."""

    ALLOWED = "allowed"
    MANDATORY = "mandatory"
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
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    REJECTED = "rejected"
    ADDRESS_GONE = "address_gone"


class EventStatus(StrEnum):
    """Where an event is in its life."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    RATE_LIMITED = "rate_limited"
    DEDUPLICATED = "deduplicated"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


# Before these are over, an event can be called back.
CANCELLABLE = frozenset({EventStatus.SCHEDULED, EventStatus.PENDING, EventStatus.PROCESSING})
# The states by which events can be listed: those that somebody looks for.
LISTED = frozenset(set(EventStatus) - CANCELLABLE - {EventStatus.COMPLETED}) | {
    EventStatus.SCHEDULED
}


class AudienceKind(StrEnum):
    """How an event says for whom it is."""

    USER = "user"
    USERS = "users"
    TOPIC = "topic"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Audience:
    """For whom an event is: named people, the followers of a topic, or everybody."""

    kind: AudienceKind
    ids: tuple[str, ...] = ()
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it."""

    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What it was done to."""

    id: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What an event says, as it is handed on to the notification."""

    data: dict[str, object] = field(default_factory=dict)
    actor: Actor | None = None
    target: Target | None = None
    channels: tuple[Channel, ...] | None = None
    deeplink: str | None = None
    image_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    app_id: str
    id: str
    type: str
    audience: Audience
    content: Content
    priority: Priority
    dedupe_key: str | None = None
    status: EventStatus
    retry_count: int = 0
    last_error: str | None = None
    remaining: int = 0
    notification_count: int = 0
    scheduled_at: int | None = None
    expires_at: int | None = None
    created_at: int
    updated_at: int


class JobKind(StrEnum):
    """What is to be done."""

    EXPAND = "expand"  # find the people of a large audience, a chunk at a time
    DECIDE = "decide"  # one event for one person
    HELD = "held"  # a notification with channels that wait for their time
    DELIVER = "deliver"  # a notification over one channel
    DIGEST = "digest"  # what was collected for a person


@dataclass(frozen=True, slots=True)
class Job:
    """Work that waits, or that is claimed: then `token` is the claim's own."""

    id: str
    lane: Priority
    due_at: int
    kind: JobKind
    app_id: str
    event_id: str
    user_id: str = ""
    subject: str = ""
    token: int = 0
    tries: int = 0


class DeliveryStatus(StrEnum):
    """Where a notification is on one channel."""

    HELD = "held"  # waits for its time
    COLLECTED = "collected"  # waits for its digest
    QUEUED = "queued"  # is to be sent now
    DELIVERED = "delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    DROPPED = "dropped"  # a rule was against it
    FOLDED = "folded"  # said as part of another notification


@dataclass(frozen=True, slots=True)
class PastDecision:
    """What was decided for a channel at one moment."""

    at: int
    status: DeliveryStatus
    reason: ReasonCode
    rule: str
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of a notification on one channel. `story` is what was decided before."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try to deliver; `device_id` is empty where there is no device."""

    notification_id: str
    channel: Channel
    number: int
    device_id: str
    status: str
    provider_response: str | None
    error_code: str | None
    error_message: str | None
    attempted_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What a person was told, or would have been."""

    app_id: str
    user_id: str
    id: str
    event_id: str
    type: str
    category: Category
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
    """The sum of a notification's deliveries; it is never stored, so it cannot contradict them."""

    CREATED = "created"
    QUEUED = "queued"
    PROCESSING = "processing"
    DELIVERED = "delivered"
    PARTIALLY_DELIVERED = "partially_delivered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    FOLDED = "folded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupeClaim:
    """Holds only if no other notification has the key: none but the one that was `seen`."""

    id: str
    notification_id: str
    seen: str | None
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitClaim:
    """Holds only while fewer than `limit` were counted."""

    id: str
    limit: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxUpdate:
    """New words of a notification. Holds only if its count is still the one that was `seen`.

    It makes what was not shown appear, and what is shown change; what was read stays as it is.
    """

    id: str
    title: str | None
    body: str
    content: Content
    count: int
    seen: int
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """The job is not over: it is due again then. `error` says that this was a try that failed."""

    due_at: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """The job has failed for good and rests as a dead letter."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The outcome of one job. It holds only while the job's lease does, and then as a whole."""

    job: Job
    next: Later | Dead | None = None
    # The event has one person less to go; this is what it becomes if that was the last one.
    settles: EventStatus | None = None
    dedupe: DedupeClaim | None = None
    limits: tuple[LimitClaim, ...] = ()
    added: Notification | None = None
    inbox_update: InboxUpdate | None = None
    deliveries: tuple[Delivery, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    jobs: tuple[Job, ...] = ()
    # Work that may be there already, for other channels or notifications: the earlier time counts.
    shared_jobs: tuple[Job, ...] = ()

    @property
    def changes_inbox(self) -> bool:
        """Whether the person sees something new."""
        return self.inbox_update is not None or (self.added is not None and self.added.is_shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A notification that holds a dedupe key, within its window."""

    notification_id: str
    count: int
    is_unread: bool
