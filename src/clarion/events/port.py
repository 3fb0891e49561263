"""The ports of the pipeline: events, the queue, notifications, deliveries and job outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clarion.catalog.model import Channel, Priority
from clarion.catalog.port import Catalog, CatalogEntry
from clarion.channels.port import Channels, PushDevices
from clarion.clock import Clock
from clarion.errors import ClarionError
from clarion.events.model import (
    DueJobs,
    EarlierNotification,
    Event,
    EventStatus,
    Job,
    JobCount,
    JobOutcome,
)
from clarion.history.port import Deliveries, NotificationReader
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.people.port import Segments, Users
from clarion.push.model import Message
from clarion.push.port import Broadcasts, DeviceRegistry, Devices, Dispatch
from clarion.telemetry.traces import OFF, Tracer


class Events(Protocol):
    """Accepted events."""

    async def accept(
        self, events: Sequence[Event], jobs: Sequence[Job], once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store events together with their first jobs: all, or none.

        If `once` was claimed by an earlier request, store nothing and return its response;
        `IdempotencyKeyReused` if that was another request.
        """

    async def accept_decided(
        self, event: Event, outcome: JobOutcome, once: IdempotencyClaim | None, now: int
    ) -> StoredResponse | bool:
        """Store an event for one user with the outcome of deciding it, and without a job.

        False, with nothing stored, if one of its claims or its inbox update fails. `once` as in
        `accept`.
        """

    async def publish(
        self, event: Event, job: Job, message: Message, once: IdempotencyClaim | None = None
    ) -> StoredResponse | int | None:
        """Store an event with its first job, and a message to a topic: both, or nothing.

        Return the sequence of the message in its topic, which is created if it does not exist;
        None if it was deleted. `once` as in `accept`.
        """

    async def find_response(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Return the response to the first request with this key, or None if there was none."""

    async def get(self, app_id: str, event_id: str) -> Event | None: ...

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, Event]:
        """Return the events that exist, by id, in one read."""

    async def find_traces(self, app_id: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the contexts of those of the events that are traced, by id, in one read."""

    async def find_cancelled(self, app_id: str, ids: Iterable[str]) -> set[str]:
        """Return the ids of those of the events that are cancelled."""

    async def list(
        self, app_id: str, *, status: EventStatus | None, after: str | None, limit: int
    ) -> Page[Event]:
        """Return the events, newest first.

        With a status that is not one of `INDEXED`, a page may have fewer items, and a cursor.
        """

    async def cancel(self, app_id: str, event_id: str, now: int) -> bool:
        """Cancel an event: no further decisions, and its held jobs are due at once.

        False if nothing of it is pending or held.
        """

    async def replay(self, app_id: str, event_id: str, lane: Priority, now: int) -> bool:
        """Make the dead letters of an event due again; False if the event has not failed.

        Many are made due in several commits. The event is failed until the last one: if the caller
        is cancelled, or the store fails, another call does the rest.
        """

    async def find_dead(self, app_id: str, job_ids: Iterable[str]) -> dict[str, str]:
        """Return the event to replay for each of these jobs that is a dead letter, by job id."""


class Queue(Protocol):
    """The jobs. A job belongs to one worker from its claim until the lease expires.

    Each claim gives the job a higher token; writes with an older token are refused.
    `token % 1000` counts the claims since the job last made progress.
    """

    async def claim(
        self, pool: str, app_id: str, quotas: Mapping[Priority, int], *, now: int, until: int
    ) -> tuple[Job, ...]:
        """Claim due jobs of an app in a pool until a time, at most the quota of each lane."""

    async def expand(self, job: Job, found: Sequence[Job], cursor: str | None, now: int) -> bool:
        """Add the jobs of some users of an audience, and store the cursor; None ends the job.

        False, with nothing added, if the lease has expired or the event was cancelled.
        """

    async def wake_user(self, app_id: str, user_id: str, now: int) -> None:
        """Make a user's held and digest jobs due at once, so that they are decided again."""

    async def hasten(
        self, channel: Channel, lane: Priority, app_id: str, due_at: int, limit: int
    ) -> int:
        """Make deliveries of a channel that wait for another try due at a time; return how many.

        Those that are due the soonest, at most `limit`. Claimed ones keep their lease, and those
        that are due earlier their time. The next failure of one does not count.
        """

    async def renew(self, jobs: Sequence[Job], until: int) -> set[str]:
        """Extend claims until a time; return the ids of the jobs whose claims still hold."""

    async def release_claims(self, node_id: str, *, now: int, until: int) -> None:
        """Make due at once every job that a node has claimed until before that time.

        Only for a node that has stopped. Jobs that wait for a particular time keep it.
        """

    async def release_lost(
        self, held: Mapping[str, Collection[str]], *, now: int, until: int
    ) -> None:
        """Make due at once the jobs that this node claimed before that time and does not hold.

        `held` are the ids of jobs that it works on, by app. Lost claims count as claims without
        progress.
        """

    async def move_due(self, after: str, *, now: int, by_ms: int, limit: int) -> str | None:
        """Add `by_ms`, which is negative, to the time of jobs that are due.

        Reads `limit` jobs after an id; returns the last id, or None if there are no more.
        """

    async def move_waiting(self, after: str, *, now: int, by_ms: int, limit: int) -> str | None:
        """Add `by_ms` to the time of jobs that wait after a try: leases and retries.

        Jobs that wait for a time of day keep it, if that is known: a delivery that was postponed
        and not tried is moved back, but not ahead; it decides again when it is due. As `move_due`.
        """

    async def find_oldest(self, *, after: DueJobs, limit: int) -> tuple[DueJobs, ...]:
        """Return the oldest job of each app in each lane and pool, due or not, at most `limit`.

        They are in the order of pool, lane and app, and come after those of `after`. Dead letters
        are in lane -1. The number of jobs that an app has does not matter to the effort.
        """

    async def count_due(self, pool: str, lane: Priority, app_id: str, now: int, limit: int) -> int:
        """Return how many jobs of an app are due in a lane of a pool, counted up to a limit."""

    async def count(self, now: int) -> dict[tuple[str, int], JobCount]:
        """Return how many jobs each app has in each lane, and how many of them are held.

        A job that a worker has claimed counts as held until its lease ends. Dead letters are in
        lane -1. May take long.
        """

    async def count_stuck(self) -> int:
        """Return how many deliveries are held or collected, and their job is a dead letter."""


class JobHandler(Protocol):
    """Does one kind of job."""

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Do the jobs, all of one app, and write their outcomes."""


# A job, its event and the type of that.
Undecided = tuple[Job, Event, CatalogEntry]
# Returns outcomes, and the jobs that depend on an outcome that is not written yet.
Decide = Callable[[Sequence[Undecided]], Awaitable[tuple[list[JobOutcome], list[Job]]]]


class AcceptedHandler(Protocol):
    """Decides events that this process has just accepted."""

    async def handle_accepted(self, pairs: Sequence[tuple[Job, Event]]) -> None:
        """Do the first jobs of events, all of one app."""


class Claims(Protocol):
    """Reads the dedupe keys and limits that decisions depend on."""

    async def find_earlier(
        self, app_id: str, ids: Iterable[str], now: int
    ) -> dict[str, EarlierNotification]:
        """Return the notifications that hold dedupe keys now, by key, in one read."""

    async def find_limit_counts(self, app_id: str, ids: Iterable[str]) -> dict[str, int]:
        """Return the uses of limits, by id, in one read; unused ones are left out."""


class Outcomes(Protocol):
    """Writes the outcomes of jobs."""

    async def write(self, outcomes: Sequence[JobOutcome], now: int) -> list[bool | ClarionError]:
        """Commit outcomes, each separately and completely or not at all; return which were stored.

        An outcome is refused, with nothing stored, if its job's lease has expired, its event was
        cancelled, or one of its claims or its inbox update fails. If the store fails, the affected
        outcomes have the error; some of them may be stored.
        """


class Ledger(Protocol):
    """Finds accepted items that are neither finished, waiting nor in progress."""

    async def find_lost(self, since: int, until: int, limit: int) -> frozenset[str]:
        """Return the ids of lost events and notifications made in a time, at most `limit` of each.

        An item that is just being written may be among them: `is_lost` is then False later.
        """

    async def is_lost(self, row_id: str) -> bool:
        """Return whether the event or notification with this id is lost."""


class Retention(Protocol):
    """Deletes old data in small steps; a step that reaches its `limit` may have left more."""

    async def prune_events(self, app_id: str, before: int, limit: int) -> int:
        """Delete finished events made before a time, at most `limit`; return how many.

        The dead letters of an event are deleted before it, at most `limit` at a time; `limit` is
        returned while some are left.
        """

    async def prune_orphaned_jobs(self, limit: int) -> int:
        """Delete jobs without a due time whose notification or collected deliveries are gone.

        At most `limit`; return how many. Reads twenty times as many jobs, and continues from there
        the next time. Other jobs of deleted notifications end when due.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePorts:
    """What the pipeline reads and writes."""

    events: Events
    queue: Queue
    notifications: NotificationReader
    claims: Claims
    outcomes: Outcomes
    deliveries: Deliveries
    users: Users
    segments: Segments
    devices: Devices
    broadcasts: Broadcasts
    catalog: Catalog
    clock: Clock
    channels: Channels
    gateway: Dispatch
    registry: DeviceRegistry
    push_devices: PushDevices
    node_id: str = ""
    # Whether no other node can have taken over what this one has claimed.
    is_live: Callable[[], bool] = lambda: True
    tracer: Tracer = OFF
