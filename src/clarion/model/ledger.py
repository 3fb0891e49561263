"""What a piece of work writes when it is done: one entry, committed whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from clarion.model.event import Attempt, Content, Delivery, EventStatus, Job, Notification


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
class Telling:
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
    telling: Telling | None = None
    deliveries: tuple[Delivery, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    jobs: tuple[Job, ...] = ()
    # Work that may be there already, for other channels or notifications: the earlier time counts.
    shared_jobs: tuple[Job, ...] = ()

    @property
    def changes_inbox(self) -> bool:
        """Whether the person sees something new."""
        return self.telling is not None or (self.added is not None and self.added.is_shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A notification that holds a dedupe key, within its window."""

    notification_id: str
    count: int
    is_unread: bool
