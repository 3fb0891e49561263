"""What was collected → one message for all of it, when it is due."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from clarion.catalog.model import Channel
from clarion.events.decide.rules import decide
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold
from clarion.events.model import DeliveryStatus, Entry, Later, ReasonCode
from clarion.events.outcomes import NEVER, deliver_job, remember, tell, turn
from clarion.events.releaser import cancel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.events.cases import Brief, Gathering
    from clarion.events.model import Delivery, Job
    from clarion.events.outcome_writer import Recording
    from clarion.events.port import Deliveries
    from clarion.events.waiting import Waiting, WaitingRoom

# So many are told at once; what is beyond is the next digest.
DIGEST_LIMIT = 1_000


class Digesting:
    """Tells a person what was collected for them."""

    def __init__(
        self,
        deliveries: Deliveries,
        room: WaitingRoom,
        gathering: Gathering,
        recording: Recording,
    ) -> None:
        self._deliveries = deliveries
        self._room = room
        self._gathering = gathering
        self._recording = recording

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Tell what is due, each digest by itself: they are few."""
        for job in jobs:
            collected = await self._deliveries.collected(
                job.app_id, job.user_id, job.id, DIGEST_LIMIT
            )
            await self._recording.write([await self._tell(job, collected)])

    async def _tell(self, job: Job, collected: tuple[Delivery, ...]) -> Entry:
        if not collected:
            return Entry(job=job)
        found, _ = await self._room.call([(job, each.notification_id) for each in collected])
        by_id = {w.notification.id: w for w in found}
        known = [(each, by_id[i]) for each in collected if (i := each.notification_id) in by_id]
        if not known:
            return _give_up(job, collected)
        briefs = await self._gathering.gather(
            [self._room.ask(w, (each,), was_collected=True) for each, w in known]
        )
        parts = [_Part(d, w, brief) for (d, w), brief in zip(known, briefs, strict=True)]
        return self._recording.attempt(job, tell_all, job, parts)


class _Part(NamedTuple):
    """One of those that were collected."""

    delivery: Delivery
    waiting: Waiting
    brief: Brief

    def decide(self) -> Decision:
        is_cancelled = self.waiting.is_cancelled
        (decision,) = cancel(self.brief) if is_cancelled else decide(self.brief.case)
        return decision


def tell_all(job: Job, parts: Sequence[_Part]) -> Entry:
    """Return what a digest comes to: the newest tells of all, the others are part of it.

    Each is decided by itself: one may be cancelled or too late while the others are told.
    """
    due_at = min(part.delivery.until or 0 for part in parts)
    if due_at > parts[0].brief.ask.now and len(parts) < DIGEST_LIMIT:
        # Somebody changed their preferences meanwhile: they count when it is time.
        return Entry(job=job, next=Later(due_at=due_at))
    decided = [(part, part.decide()) for part in parts]
    dropped = tuple(
        turn(part.delivery, part.brief.ask, decision)
        for part, decision in decided
        if isinstance(decision.verdict, Drop)
    )
    left = [(part, d) for part, d in decided if not isinstance(d.verdict, Drop)]
    if not left:
        return Entry(job=job, deliveries=dropped)
    lead, decision = left[0]
    if isinstance(decision.verdict, Hold):
        until = decision.verdict.until
        return Entry(
            job=job,
            next=Later(due_at=NEVER if until is None else until),
            deliveries=dropped,
        )
    return _send(job, lead, decision, [part.delivery for part, _ in left], dropped)


def _send(
    job: Job,
    lead: _Part,
    decision: Decision,
    collected: Sequence[Delivery],
    dropped: tuple[Delivery, ...],
) -> Entry:
    count, channel, ask = len(collected), decision.channel, lead.brief.ask
    first = replace(turn(lead.delivery, ask, decision), count=count)
    fold = Decision(channel, Fold(ReasonCode.JOINS_DIGEST, into=first.notification_id), "digest")
    others = tuple(turn(each, ask, fold) for each in collected[1:])
    is_inbox = channel is Channel.IN_APP
    notification = lead.waiting.notification
    return Entry(
        job=job,
        inbox_update=tell(lead.brief, notification.id, count, notification.count, is_first=True)
        if is_inbox
        else None,
        deliveries=(first, *others, *dropped),
        jobs=()
        if is_inbox
        else (deliver_job(ask, notification.event_id, notification.id, channel),),
    )


def _give_up(job: Job, collected: tuple[Delivery, ...]) -> Entry:
    """Return the end of a digest whose notification or type is gone."""
    gone = tuple(
        replace(
            remember(each),
            status=DeliveryStatus.DROPPED,
            reason=ReasonCode.TYPE_INACTIVE,
            until=None,
            digest=None,
        )
        for each in collected
    )
    return Entry(job=job, deliveries=gone)
