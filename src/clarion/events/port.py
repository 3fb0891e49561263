"""The ports of the pipeline: events, the queue, the facts, the ledger, and the channels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from clarion.catalog.model import Priority
from clarion.events.model import (
    Attempt,
    Delivery,
    Earlier,
    Entry,
    Event,
    EventStatus,
    Job,
    Notification,
)
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page


class Events(Protocol):
    """What happened."""

    async def accept(
        self, events: Sequence[Event], jobs: Sequence[Job], once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store events together with the work that waits for them: all, or none.

        `once` as in `Keys.create`.
        """
        ...

    async def recall(self, once: IdempotencyClaim) -> StoredResponse | None:
        """Return what the first request with this key was answered, or None if there was none."""
        ...

    async def get(self, app_id: str, event_id: str) -> Event | None:
        """Return the event, or None."""
        ...

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, Event]:
        """Return those of the events that there are, in one read."""
        ...

    async def list(
        self, app_id: str, *, status: EventStatus | None, after: str | None, limit: int
    ) -> Page[Event]:
        """Return the events, newest first; by status only for those of `LISTED`."""
        ...

    async def cancel(self, app_id: str, event_id: str, now: int) -> bool:
        """Call an event back: what is not decided never will be, what waits is due at once.

        False if all of it is over.
        """
        ...

    async def replay(self, app_id: str, event_id: str, lane: Priority, now: int) -> bool:
        """Try the dead letters of an event once more; False if it has not failed."""
        ...


class Queue(Protocol):
    """Work that waits. A job is one worker's from its claim until the lease runs out.

    Each claim gives the job a higher token; what a worker writes with an older one is refused.
    `token % 1000` is how often it was claimed since something came of it.
    """

    async def claim(
        self, quotas: Mapping[Priority, int], *, now: int, until: int
    ) -> tuple[Job, ...]:
        """Claim jobs that are due, as many of each lane as its quota, until a time."""
        ...

    async def expand(self, job: Job, found: Sequence[Job], cursor: str | None, now: int) -> bool:
        """Add the work for some people of an audience, and remember how far it got.

        `cursor` None: that was the end of it. False if the lease is over or the event cancelled;
        then nothing was added.
        """
        ...

    async def wake_person(self, app_id: str, user_id: str, now: int) -> None:
        """Make due at once what waits for a person's time, so that it is decided anew."""
        ...

    async def release_all(self, *, now: int, until: int) -> None:
        """Make due at once what is claimed until then or less: whoever claimed it is no more.

        Only who is alone may say so. What waits for its own time goes on waiting.
        """
        ...

    async def oldest(self, lane: Priority) -> int | None:
        """Return when the first job of a lane is or was due; None if it is empty."""
        ...

    async def count_due(self, lane: Priority, now: int, limit: int) -> int:
        """Return how many jobs of a lane are due, counted up to a limit."""
        ...


class Facts(Protocol):
    """What has to be known to decide; each method is one read for a whole batch."""

    async def earlier(self, app_id: str, ids: Iterable[str], now: int) -> dict[str, Earlier]:
        """Return the notifications that hold dedupe keys within their windows."""
        ...

    async def used(self, app_id: str, ids: Iterable[str]) -> dict[str, int]:
        """Return how much of limits is used, of those that are."""
        ...

    async def notifications(
        self, app_id: str, user_ids: Iterable[str], ids: Iterable[str]
    ) -> dict[str, Notification]:
        """Return notifications of some people by their ids."""
        ...

    async def find(self, app_id: str, notification_id: str) -> Notification | None:
        """Return one notification, whosever it is, or None."""
        ...

    async def of_event(
        self, app_id: str, event_id: str, *, after: str | None, limit: int
    ) -> Page[Notification]:
        """Return what an event came to, person by person, in the order of the ids."""
        ...


class Ledger(Protocol):
    """What became of the work."""

    async def write(self, entries: Sequence[Entry], now: int) -> list[bool]:
        """Commit entries, each whole and by itself; say which of them hold.

        One does not if its job's lease is over, its event was cancelled, or one of its claims was
        lost to another. Then nothing of it is stored.
        """
        ...


class Deliveries(Protocol):
    """What became of notifications, channel by channel."""

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, tuple[Delivery, ...]]:
        """Return the deliveries of notifications, by their ids, in one read."""
        ...

    async def attempts(self, notification_id: str) -> tuple[Attempt, ...]:
        """Return the attempts to deliver a notification, at most 1,000."""
        ...

    async def collected(
        self, app_id: str, user_id: str, digest: str, limit: int
    ) -> tuple[Delivery, ...]:
        """Return what waits for a digest, newest first."""
        ...

    async def waiting(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> tuple[Delivery, ...]:
        """Return what is held or collected for a person, behind a notification's id."""
        ...


class Retention(Protocol):
    """What has been kept long enough. Each step is small; what it returns says if more is left."""

    async def find_old_notifications(
        self, before: int, limit: int
    ) -> dict[tuple[str, str], list[str]]:
        """Return notifications made before a time, at most `limit`: their ids by app and person."""
        ...

    async def prune_events(self, app_id: str, before: int, limit: int) -> int:
        """Delete events made before a time that are over, at most `limit`; return how many."""
        ...

    async def find_old_devices(self, before: int, limit: int) -> tuple[tuple[str, str], ...]:
        """Return devices that ended before a time, at most `limit`, as app and device."""
        ...

    async def prune_claims(self, now: int, limit: int) -> int:
        """Delete dedupe keys and limit counts whose time has passed, at most `limit` of each."""
        ...

    async def prune_answers(self, now: int, limit: int) -> int:
        """Delete idempotency keys whose time has passed, at most `limit`; return how many."""
        ...
