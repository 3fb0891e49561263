"""Events, their audiences, the jobs they lead to, and the notifications that come of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from clarion.catalog.model import Channel, Priority
from clarion.fields import NO_CONTROLS
from clarion.push.model import StoredMessage

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


class EventStatus(StrEnum):
    """The state of an event.

    `completed`: it is decided for every recipient; what is held is sent later. An event for one
    user of which nothing is ever sent shows why: `deduplicated`, `rate_limited` or `expired`.
    """

    SCHEDULED = "scheduled"
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    RATE_LIMITED = "rate_limited"
    DEDUPLICATED = "deduplicated"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


# The statuses that the table has an index for: few events have one of these.
INDEXED = frozenset(EventStatus) - {
    EventStatus.PENDING,
    EventStatus.PROCESSING,
    EventStatus.COMPLETED,
}
# The due time of what is held until a preference changes: later than any clock shows.
NEVER = 1 << 62
# The pools of jobs that are not deliveries.
DECISIONS = ""
AUDIENCES = "audience"
# All pools. What is in an inbox is there with the decision.
POOLS = (DECISIONS, AUDIENCES, *(each.value for each in Channel if each is not Channel.IN_APP))


class AudienceKind(StrEnum):
    """How the recipients of an event are given."""

    USER = "user"
    USERS = "users"
    TOPIC = "topic"
    SEGMENT = "segment"
    ALL = "all"


class Audience(msgspec.Struct, frozen=True):
    """The recipients of an event: named users, those of a topic or segment, or all users."""

    kind: AudienceKind
    ids: tuple[str, ...] = ()
    topic: str | None = None
    segment: str | None = None
    # Of the segment, when the event was accepted.
    filter: str | None = None


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


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in an application.

    `remaining` counts the recipients without a decision, `notification_count` those with one.
    """

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
    trace: str | None = None  # the context of the request, if that is traced


class JobKind(StrEnum):
    """What a job does."""

    EXPAND = "expand"  # list the users of a large audience, a chunk at a time
    DECIDE = "decide"  # decide one event for one user
    HELD = "held"  # decide again for the channels of a notification that are held
    DELIVER = "deliver"  # deliver a notification over one channel
    DIGEST = "digest"  # send what was collected for a user


# A token grows by one with each claim, and to the next thousand when the job makes progress: so it
# is never used twice, and its last three digits count the claims without progress.
TOKEN_STEP = 1_000


class Job(msgspec.Struct, frozen=True):
    """Queued work. `token` is the fencing token of its latest claim.

    `pool` names the workers that run it: `AUDIENCES`, a channel, or `DECISIONS` for all the rest.
    `node_id` is the node of the latest claim; empty with SQLite.
    """

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
    pool: str = DECISIONS
    node_id: str = ""


class DueJobs(NamedTuple):
    """The oldest job of an app in a lane of a pool is due at this time."""

    pool: str
    lane: int
    app_id: str
    due_at: int


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


class DedupeClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Takes a dedupe key; fails if any notification but the `expected_holder` has it."""

    id: str
    notification_id: str
    expected_holder: str | None
    expires_at: int


class LimitClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Counts one use of a limit; fails if `limit` uses are counted already."""

    id: str
    limit: int
    expires_at: int


class InboxUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """New text and count of a notification; `is_new` if the inbox does not show it yet.

    Fails if the stored count is not the `expected_count`, or it was read or dismissed.
    """

    id: str
    title: str | None
    body: str
    content: Content
    count: int
    expected_count: int
    is_new: bool


class Reschedule(msgspec.Struct, frozen=True, kw_only=True):
    """The job is due again at a time; with an `error` this counts as a failed try.

    If it `is_failure`; otherwise the event shows why it waits.
    """

    due_at: int
    error: str | None = None
    is_failure: bool = True


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The job has failed for good; it is kept, and can be replayed."""

    error: str


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the work on one job changes, committed together under the job's lease."""

    job: Job
    next: Reschedule | DeadLetter | None = None  # None: the job is done
    # One recipient of the event is decided; the status that the event takes after the last one.
    final_status: EventStatus | None = None
    dedupe_claim: DedupeClaim | None = None
    limit_claims: tuple[LimitClaim, ...] = ()
    notification: Notification | None = None
    inbox_update: InboxUpdate | None = None
    deliveries: tuple[Delivery, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    jobs: tuple[Job, ...] = ()
    # Messages to devices of our own gateway.
    messages: tuple[StoredMessage, ...] = ()
    # Jobs that may exist already, for other channels or notifications: the earlier time counts.
    shared_jobs: tuple[Job, ...] = ()

    @property
    def changes_inbox(self) -> bool:
        """Whether the user's inbox shows something new."""
        return self.inbox_update is not None or (
            self.notification is not None and self.notification.is_shown
        )


class EarlierNotification(msgspec.Struct, frozen=True, kw_only=True):
    """The notification that holds a dedupe key; one that was deleted stands in nobody's way."""

    notification_id: str
    count: int
    is_unread: bool
    is_deleted: bool = False
