"""What was collected → one message for all of it, when it is due."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clarion.decide.rules import decide
from clarion.decide.verdicts import Decision, Drop, Fold, Hold, Send
from clarion.model import Channel, DeliveryStatus, Entry, Later, ReasonCode
from clarion.pipeline.ruling import NEVER, deliver_job, remember, tell, turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.model import Delivery, Job
    from clarion.pipeline.gathering import Brief, Gathering
    from clarion.pipeline.recording import Recording
    from clarion.pipeline.waiting import Waiting, WaitingRoom
    from clarion.ports import Deliveries

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
        (lead,) = await self._room.call([(job, collected[0].notification_id)])
        if lead is None or lead.kind is None:
            return _give_up(job, collected)
        ask = self._room.ask(lead, lead.kind, collected[:1], was_collected=True)
        (brief,) = await self._gathering.gather([ask])
        return self._recording.attempt(job, tell_all, lead, brief, collected)


def tell_all(lead: Waiting, brief: Brief, collected: tuple[Delivery, ...]) -> Entry:
    """Return what a digest comes to: the newest tells of all, the others are part of it."""
    (decision,) = decide(brief.case)
    if isinstance(decision.verdict, Hold):
        return Entry(job=lead.job, next=Later(due_at=decision.verdict.until or NEVER))
    if isinstance(decision.verdict, Drop):
        return Entry(
            job=lead.job, deliveries=tuple(turn(d, brief.ask, decision) for d in collected)
        )
    return _send(lead, brief, decision, collected)


def _send(
    lead: Waiting, brief: Brief, decision: Decision, collected: tuple[Delivery, ...]
) -> Entry:
    count, channel = len(collected), decision.channel
    first = replace(turn(collected[0], brief.ask, decision), count=count)
    fold = Decision(channel, Fold(ReasonCode.JOINS_DIGEST, into=first.notification_id), "digest")
    others = tuple(turn(each, brief.ask, fold) for each in collected[1:])
    is_inbox = channel is Channel.IN_APP and isinstance(decision.verdict, Send)
    seen = lead.notification.count
    return Entry(
        job=lead.job,
        telling=tell(brief, first.notification_id, count, seen, is_first=True)
        if is_inbox
        else None,
        deliveries=(first, *others),
        jobs=()
        if is_inbox
        else (deliver_job(brief.ask, lead.notification.event_id, lead.notification.id, channel),),
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
