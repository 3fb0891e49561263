"""Reads notifications that wait, with all that is needed to decide for them again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clarion.events.cases import DecisionRequest
from clarion.events.model import DeadLetter, EventStatus, JobOutcome, ReasonCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clarion.catalog.model import Channel
    from clarion.catalog.port import Catalog, CatalogEntry
    from clarion.clock import Clock
    from clarion.events.model import Delivery, Event, Job, Notification
    from clarion.events.port import Deliveries, Events, NotificationReader


@dataclass(frozen=True, slots=True)
class WaitingNotification:
    """A notification with its deliveries; `event` is None if that was deleted."""

    job: Job
    notification: Notification
    deliveries: tuple[Delivery, ...]
    event: Event | None
    entry: CatalogEntry

    @property
    def is_cancelled(self) -> bool:
        return self.event is not None and self.event.status is EventStatus.CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReader:
    """Reads notifications that wait, for many jobs of one app at once."""

    notifications: NotificationReader
    deliveries: Deliveries
    events: Events
    catalog: Catalog
    clock: Clock

    async def read(
        self, pairs: Sequence[tuple[Job, str]]
    ) -> tuple[list[WaitingNotification], list[JobOutcome]]:
        """Return the notifications of pairs of job and notification id.

        Also return the outcomes of the other jobs: one whose notification was deleted is done,
        one whose type was deleted is a dead letter.
        """
        app_id = pairs[0][0].app_id
        ids = [notification_id for _, notification_id in pairs]
        user_ids = {job.user_id for job, _ in pairs}
        found = await self.notifications.find_many(app_id, user_ids, ids)
        deliveries = await self.deliveries.find_many(app_id, ids)
        events = await self.events.find_many(app_id, {n.event_id for n in found.values()})
        waiting: list[WaitingNotification] = []
        outcomes: list[JobOutcome] = []
        for job, notification_id in pairs:
            notification = found.get(notification_id)
            if notification is None:
                outcomes.append(JobOutcome(job=job))
                continue
            entry = await self.catalog.find(app_id, notification.type)
            if entry is None:
                outcomes.append(fail_without_type(job, notification.type))
                continue
            event = events.get(notification.event_id)
            own = deliveries.get(notification_id, ())
            waiting.append(WaitingNotification(job, notification, own, event, entry))
        return waiting, outcomes

    def make_request(
        self,
        waiting: WaitingNotification,
        deliveries: Iterable[Delivery],
        *,
        was_collected: bool = False,
    ) -> DecisionRequest:
        """Return the request to decide for some deliveries again.

        Dedupe was decided the first time; limits apply to what waited for one; what was collected
        once is not collected again.
        """
        chosen = tuple(deliveries)
        notification = waiting.notification
        return DecisionRequest(
            app_id=notification.app_id,
            user_id=notification.user_id,
            entry=_without_past(waiting.entry, was_collected=was_collected),
            priority=notification.priority,
            content=notification.content,
            channels=tuple(each.channel for each in chosen),
            expires_at=notification.expires_at,
            is_limited=any(each.reason is ReasonCode.LIMIT_WAITS for each in chosen),
            now=self.clock.now(),
        )


def _without_past(entry: CatalogEntry, *, was_collected: bool) -> CatalogEntry:
    definition = entry.type
    digest = None if was_collected else definition.digest
    if definition.dedupe is None and digest is definition.digest:
        return entry
    return entry.with_type(replace(definition, dedupe=None, digest=digest))


def fail_without_type(job: Job, type_name: str) -> JobOutcome:
    """Return the outcome of a job whose type was deleted: it can be replayed with a new type."""
    return JobOutcome(job=job, next=DeadLetter(error=f"There is no type {type_name}."))


def by_channel(deliveries: Iterable[Delivery]) -> dict[Channel, Delivery]:
    """Return deliveries by their channels."""
    return {each.channel: each for each in deliveries}
