"""Sends the notifications collected for a digest as one message when the digest is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from msgspec.structs import replace

from clarion.catalog.model import Channel
from clarion.errors import InvalidFields
from clarion.events.decide.digests import find_due
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold
from clarion.events.model import NEVER, Job, JobOutcome, Reschedule
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.outcomes import archive_decision, make_jobs, update_inbox
from clarion.events.rendering import render
from clarion.events.waiting import WaitingNotification, WaitingReader
from clarion.history.model import Delivery, DeliveryStatus, ReasonCode
from clarion.history.port import Deliveries
from clarion.inbox.model import InboxUpdate

# A digest takes in at most this many; the rest is the next digest.
DIGEST_LIMIT = 1_000
# Parts that are tried to find one that can be rendered. Each may take a quarter of a second, of the
# 20 seconds that an app has in a minute.
TEXTS_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Digester:
    """Handles the jobs of digests."""

    deliveries: Deliveries
    waiting: WaitingReader
    writer: OutcomeWriter

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Send the digests one by one: they are few."""
        for job in jobs:
            collected = await self.deliveries.list_collected(
                job.app_id, job.user_id, job.id, DIGEST_LIMIT
            )
            await self.writer.write([await self._digest(job, collected)])

    async def _digest(self, job: Job, collected: tuple[Delivery, ...]) -> JobOutcome:
        if not collected:
            return JobOutcome(job=job)
        pairs = [(job, each.notification_id) for each in collected]
        parts, _ = await self.waiting.read(pairs, _is_collected)
        if not parts:
            return _drop_all(job, collected)
        return await self.writer.run_safely(job, digest, job, parts)


def _is_collected(job: Job, delivery: Delivery) -> bool:
    return delivery.status is DeliveryStatus.COLLECTED and delivery.digest == job.id


async def digest(job: Job, parts: Sequence[WaitingNotification]) -> JobOutcome:
    """Return the outcome of a digest: the newest part is sent for all, the others join it.

    Each part is decided separately: one may be cancelled or expired while the others are sent. A
    part whose text cannot be rendered is sent separately, and fails.
    """
    dues = [_find_due(part) for part in parts]
    if min(dues) > parts[0].prepared.request.now and len(parts) < DIGEST_LIMIT:
        # A change of preferences woke it too early; they count when the digest is due.
        return _wait(job, parts, dues)
    dropped: list[Delivery] = []
    left: list[tuple[WaitingNotification, Decision]] = []
    for part in parts:
        (decision,) = part.decide()
        if isinstance(decision.verdict, Drop):
            dropped += part.apply([decision])
        else:
            left.append((part, decision))
    if not left:
        return JobOutcome(job=job, deliveries=tuple(dropped))
    decision = left[0][1]
    if isinstance(decision.verdict, Hold):
        until = decision.verdict.until
        again = Reschedule(due_at=NEVER if until is None else until)
        return JobOutcome(job=job, next=again, deliveries=tuple(dropped))
    return await _send(job, [part for part, _ in left], decision, dropped)


def _find_due(part: WaitingNotification) -> int:
    """Return when a part is due: if daily, at that time where the user is now."""
    (delivery,), user, digest = part.deliveries, part.prepared.case.user, part.digest
    is_digest = delivery.reason is ReasonCode.JOINS_DIGEST
    if digest is None or digest.daily_at is None or user is None or not is_digest:
        return delivery.until or 0
    return find_due(digest, delivery.decided_at, user.timezone)


def _wait(job: Job, parts: Sequence[WaitingNotification], dues: Sequence[int]) -> JobOutcome:
    """Return the outcome of a digest that is not due yet, with the times that have changed."""
    pairs = [(part.deliveries[0], due_at) for part, due_at in zip(parts, dues, strict=True)]
    moved = tuple(replace(each, until=due_at) for each, due_at in pairs if each.until != due_at)
    return JobOutcome(job=job, next=Reschedule(due_at=min(dues)), deliveries=moved)


async def _send(
    job: Job,
    parts: Sequence[WaitingNotification],
    decision: Decision,
    dropped: Sequence[Delivery],
) -> JobOutcome:
    channel, number = decision.channel, await _find_lead(parts, decision.channel)
    lead, count = parts[number], len(parts) - number
    fold = Decision(channel, Fold(ReasonCode.JOINS_DIGEST, into=lead.notification.id), "digest")
    apart = _decide_apart(decision, lead.prepared.request.now)
    decisions = (*repeat(apart, number), decision, *repeat(fold, count - 1))
    decided = [part.apply([each])[0] for part, each in zip(parts, decisions, strict=True)]
    decided[number] = replace(decided[number], count=count)
    made = [
        make_jobs(part.prepared.request, part.notification.event_id, (delivery,))
        for part, delivery in zip(parts, decided, strict=True)
    ]
    return JobOutcome(
        job=job,
        inbox_update=await _show(lead, count) if channel is Channel.IN_APP else None,
        deliveries=(*decided, *dropped),
        jobs=tuple(each for own, _ in made for each in own),
        shared_jobs=tuple(each for _, shared in made for each in shared),
    )


async def _find_lead(parts: Sequence[WaitingNotification], channel: Channel) -> int:
    """Return the number of the newest part that can be rendered; `InvalidFields` if none can.

    Then the template is at fault, and all of them stay collected for when it is repaired.
    """
    faults: list[InvalidFields] = []
    for number, part in enumerate(parts[:TEXTS_LIMIT]):
        entry, user = part.prepared.request.entry, part.prepared.case.recipient
        try:
            await render(entry, channel, user, part.notification.content, len(parts) - number)
        except InvalidFields as fault:
            faults.append(fault)
        else:
            return number
    raise faults[0]


def _decide_apart(decision: Decision, now: int) -> Decision:
    """Return the decision for a part that is sent separately; the inbox has no job that sends."""
    if decision.channel is not Channel.IN_APP:
        return decision
    return Decision(Channel.IN_APP, Hold(ReasonCode.JOINS_DIGEST, now), "digest")


async def _show(lead: WaitingNotification, count: int) -> InboxUpdate:
    id_, expected = lead.notification.id, lead.notification.count
    return await update_inbox(lead.prepared, id_, count, expected, is_new=True)


def _drop_all(job: Job, collected: tuple[Delivery, ...]) -> JobOutcome:
    """Return the outcome of a digest whose notifications or type were deleted."""
    dropped = tuple(
        replace(
            archive_decision(each),
            status=DeliveryStatus.DROPPED,
            reason=ReasonCode.TYPE_INACTIVE,
            until=None,
            digest=None,
        )
        for each in collected
    )
    return JobOutcome(job=job, deliveries=dropped)
