"""Notifications that wait, with all that is needed to decide for them anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clarion.events.cases import Ask
from clarion.events.model import Dead, Entry, EventStatus, ReasonCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clarion.catalog.model import Channel
    from clarion.catalog.port import Catalog, CatalogEntry
    from clarion.clock import Clock
    from clarion.events.model import Delivery, Event, Job, Notification
    from clarion.events.port import Deliveries, Events, Facts


@dataclass(frozen=True, slots=True)
class Waiting:
    """A notification, its deliveries and its event, if that is still known."""

    job: Job
    notification: Notification
    deliveries: tuple[Delivery, ...]
    event: Event | None
    kind: CatalogEntry

    @property
    def is_cancelled(self) -> bool:
        """Whether the event was called back."""
        return self.event is not None and self.event.status is EventStatus.CANCELLED


class WaitingRoom:
    """Reads notifications that wait, for many jobs of one app at once."""

    def __init__(
        self,
        *,
        facts: Facts,
        deliveries: Deliveries,
        events: Events,
        catalog: Catalog,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._deliveries = deliveries
        self._events = events
        self._catalog = catalog
        self._clock = clock

    async def call(self, pairs: Sequence[tuple[Job, str]]) -> tuple[list[Waiting], list[Entry]]:
        """Return what waits, for each job and notification id, and the end of jobs in vain.

        Those are in vain whose notification is no more; one whose type is gone is a dead letter.
        """
        app_id = pairs[0][0].app_id
        ids = [notification_id for _, notification_id in pairs]
        found = await self._facts.notifications(app_id, {job.user_id for job, _ in pairs}, ids)
        deliveries = await self._deliveries.find_many(app_id, ids)
        events = await self._events.find_many(app_id, {n.event_id for n in found.values()})
        waiting: list[Waiting] = []
        ends: list[Entry] = []
        for job, notification_id in pairs:
            notification = found.get(notification_id)
            if notification is None:
                ends.append(Entry(job=job))
                continue
            kind = await self._catalog.find(app_id, notification.type)
            if kind is None:
                ends.append(bury_for_type(job, notification.type))
                continue
            event = events.get(notification.event_id)
            mine = deliveries.get(notification_id, ())
            waiting.append(Waiting(job, notification, mine, event, kind))
        return waiting, ends

    def ask(
        self,
        waiting: Waiting,
        deliveries: Iterable[Delivery],
        *,
        was_collected: bool = False,
    ) -> Ask:
        """Return what is to be decided anew.

        A repeat it is not, for that was decided before; a limit counts if it waited for one; and
        what was collected is not collected again.
        """
        chosen = tuple(deliveries)
        notification = waiting.notification
        return Ask(
            app_id=notification.app_id,
            user_id=notification.user_id,
            kind=_without_past(waiting.kind, was_collected=was_collected),
            priority=notification.priority,
            content=notification.content,
            channels=tuple(each.channel for each in chosen),
            expires_at=notification.expires_at,
            counts=any(each.reason is ReasonCode.LIMIT_WAITS for each in chosen),
            now=self._clock.now(),
        )


def _without_past(kind: CatalogEntry, *, was_collected: bool) -> CatalogEntry:
    of = kind.type
    digest = None if was_collected else of.digest
    if of.dedupe is None and digest is of.digest:
        return kind
    return kind.with_type(replace(of, dedupe=None, digest=digest))


def bury_for_type(job: Job, type_name: str) -> Entry:
    """Return the end of a job whose type was deleted: it can be replayed when the type is back."""
    return Entry(job=job, next=Dead(error=f"There is no type {type_name}."))


def by_channel(deliveries: Iterable[Delivery]) -> dict[Channel, Delivery]:
    """Return deliveries by their channels."""
    return {each.channel: each for each in deliveries}
