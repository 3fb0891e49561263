"""Events, their audiences, the jobs they lead to, and the outcomes of these."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from clarion.catalog.model import Channel, Priority
from clarion.history.model import Attempt, Content, Delivery, Notification
from clarion.inbox.model import InboxUpdate
from clarion.push.model import StoredMessage


class EventStatus(StrEnum):
    """The state of an event.

    `completed`: decided for every recipient; held notifications are sent later. If an event for one
    user is never sent, the status shows why: `deduplicated`, `rate_limited` or `expired`.
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
# The due time of jobs that are held until a preference changes: later than any clock shows.
NEVER = 1 << 62
# The pools of jobs that are not deliveries.
DECISIONS = ""
AUDIENCES = "audience"
# All pools. There is none for the inbox: it shows a notification as soon as it is decided.
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
    """The kind of work of a job."""

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


class JobCount(NamedTuple):
    """How many jobs there are, and how many of them are for a later time."""

    total: int
    held: int


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


class Reschedule(msgspec.Struct, frozen=True, kw_only=True):
    """The job is due again at a time; with an `error` this counts as a failed try.

    If it `is_failure`; otherwise the event shows why it waits.
    """

    due_at: int
    error: str | None = None
    is_failure: bool = True


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The job has failed permanently; it is kept, and can be replayed."""

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
    """The notification that holds a dedupe key; a deleted one no longer counts."""

    notification_id: str
    count: int
    is_unread: bool
    is_deleted: bool = False
