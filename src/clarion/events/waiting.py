"""Reads notifications that wait, with all that is needed to decide for them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from clarion.catalog.model import Digest
from clarion.catalog.port import CatalogEntry
from clarion.events.cases import CaseReader, DecisionRequest, PreparedCase
from clarion.events.decide.rules import decide
from clarion.events.decide.verdicts import Decision, Drop
from clarion.events.model import DeadLetter, Job, JobOutcome
from clarion.events.outcomes import cancel, redecide
from clarion.events.port import PipelinePorts
from clarion.history.model import Delivery, DeliveryStatus, Notification, ReasonCode
from clarion.pacing import read_in_chunks


@dataclass(frozen=True, slots=True)
class WaitingNotification:
    """A notification, and those of its deliveries that are decided again."""

    job: Job
    notification: Notification
    deliveries: tuple[Delivery, ...]
    digest: Digest | None  # that the type has now
    is_cancelled: bool
    prepared: PreparedCase

    def decide(self) -> tuple[Decision, ...]:
        """Return a new decision for each delivery, in order."""
        if not self.is_cancelled:
            return decide(self.prepared.case)
        drop = Drop(ReasonCode.CANCELLED)
        return tuple(Decision(each.channel, drop, "cancelled") for each in self.deliveries)

    def apply(self, decisions: Iterable[Decision]) -> tuple[Delivery, ...]:
        """Return the deliveries with new decisions."""
        pairs, request = zip(self.deliveries, decisions, strict=True), self.prepared.request
        return tuple(redecide(delivery, request, decision) for delivery, decision in pairs)


@dataclass(frozen=True, slots=True)
class WaitingReader:
    """Reads notifications that wait, for many jobs of one app at once."""

    ports: PipelinePorts
    cases: CaseReader

    async def read(
        self, pairs: Sequence[tuple[Job, str]], waits: Callable[[Job, Delivery], bool]
    ) -> tuple[list[WaitingNotification], list[JobOutcome]]:
        """Return the notifications of pairs of job and notification id that still wait.

        Also return the outcomes of the other jobs: one is done if its notification was deleted or
        no delivery waits for it, and a dead letter if the type was deleted.
        """
        waiting: list[WaitingNotification] = []
        outcomes: list[JobOutcome] = []

        async def read(some: Sequence[tuple[Job, str]]) -> None:
            found, others = await self._read_some(some, waits)
            waiting.extend(found)
            outcomes.extend(others)

        await read_in_chunks(pairs, read)
        return waiting, outcomes

    async def _read_some(
        self, pairs: Sequence[tuple[Job, str]], waits: Callable[[Job, Delivery], bool]
    ) -> tuple[list[WaitingNotification], list[JobOutcome]]:
        ports, app_id, now = self.ports, pairs[0][0].app_id, self.ports.clock.now()
        ids = [notification_id for _, notification_id in pairs]
        known = await ports.notifications.find_many(app_id, {job.user_id for job, _ in pairs}, ids)
        events = {each.event_id for each in known.values()}
        cancelled = await ports.events.find_cancelled(app_id, events)
        deliveries = await ports.deliveries.find_worked_on(app_id, ids)
        found: list[tuple[Job, Notification, tuple[Delivery, ...], Digest | None]] = []
        requests: list[DecisionRequest] = []
        outcomes: list[JobOutcome] = []
        for job, notification_id in pairs:
            notification = known.get(notification_id)
            own = tuple(each for each in deliveries.get(notification_id, ()) if waits(job, each))
            if notification is None or not own:
                outcomes.append(JobOutcome(job=job))
            elif (entry := await ports.catalog.find(app_id, notification.type)) is None:
                if notification.event_id in cancelled:  # a dead letter of it is never replayed
                    ended = tuple(cancel(each, now) for each in own)
                    outcomes.append(JobOutcome(job=job, deliveries=ended))
                else:
                    outcomes.append(fail_without_type(job, notification.type))
            else:
                found.append((job, notification, own, entry.type.digest))
                requests.append(_make_request(notification, own, entry, now))
        cases = await self.cases.read(requests)
        waiting = [
            WaitingNotification(*each, each[1].event_id in cancelled, prepared)
            for each, prepared in zip(found, cases, strict=True)
        ]
        return waiting, outcomes


def _make_request(
    notification: Notification, deliveries: Sequence[Delivery], entry: CatalogEntry, now: int
) -> DecisionRequest:
    """Return the request to decide again: dedupe was decided the first time."""
    digest = entry.type.digest if all(map(_may_be_collected, deliveries)) else None
    if entry.type.dedupe is not None or digest is not entry.type.digest:
        entry = entry.with_type(replace(entry.type, dedupe=None, digest=digest))
    return DecisionRequest(
        app_id=notification.app_id,
        user_id=notification.user_id,
        entry=entry,
        priority=notification.priority,
        content=notification.content,
        channels=tuple(each.channel for each in deliveries),
        expires_at=notification.expires_at,
        # Limits apply to what waited for one.
        is_limited=any(each.reason is ReasonCode.LIMIT_WAITS for each in deliveries),
        is_read=_is_read(notification) and any(map(_has_waited, deliveries)),
        now=now,
    )


def _is_read(notification: Notification) -> bool:
    return notification.read_at is not None or notification.dismissed_at is not None


def _has_waited(delivery: Delivery) -> bool:
    """Whether it was held or tried before. A delivery to be sent at once is sent, even if read.

    Otherwise it would depend on milliseconds whether a user with an open inbox gets an email.
    """
    return delivery.status is not DeliveryStatus.QUEUED or delivery.attempt_count > 0


def _may_be_collected(delivery: Delivery) -> bool:
    """Whether a digest may include it; one that is a digest itself would count as one part."""
    was_collected = any(each.status is DeliveryStatus.COLLECTED for each in delivery.past_decisions)
    return delivery.status is DeliveryStatus.HELD and not was_collected


def fail_without_type(job: Job, type_name: str) -> JobOutcome:
    """Return the outcome of a job whose type was deleted: it can be replayed with a new type."""
    return JobOutcome(job=job, next=DeadLetter(error=f"There is no type {type_name}."))
