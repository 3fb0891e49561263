"""What was held → decided anew when its time has come, with the preferences of this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.events.batch_view import Foresight
from clarion.events.decide.rules import decide
from clarion.events.decide.verdicts import Decision, Drop
from clarion.events.model import DeliveryStatus, Entry, Later, ReasonCode
from clarion.events.outcomes import NEVER, claim_uses, follow_up, shows, tell, turn
from clarion.events.waiting import by_channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.events.cases import Brief, Gathering
    from clarion.events.model import Delivery, InboxUpdate, Job
    from clarion.events.outcome_writer import Recording
    from clarion.events.waiting import Waiting, WaitingRoom


class Releasing:
    """Decides anew for notifications with channels that were held."""

    def __init__(self, room: WaitingRoom, gathering: Gathering, recording: Recording) -> None:
        self._room = room
        self._gathering = gathering
        self._recording = recording

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Decide anew for jobs of one app. Those that are refused come back by their lease."""
        found, entries = await self._room.call([(job, job.subject) for job in jobs])
        entries += [Entry(job=w.job) for w in found if not _held(w)]
        open_ = [w for w in found if _held(w)]
        briefs = await self._gathering.gather(
            [self._room.ask(w, _held(w), was_collected=_was_collected(w)) for w in open_]
        )
        foresight = Foresight()
        for waiting, brief in zip(open_, briefs, strict=True):
            foreseen = foresight.see(brief) or brief
            entry = self._recording.attempt(waiting.job, release, waiting, foreseen)
            foresight.note(brief.ask, entry)
            entries.append(entry)
        await self._recording.write(entries)


def _held(waiting: Waiting) -> tuple[Delivery, ...]:
    return tuple(d for d in waiting.deliveries if d.status is DeliveryStatus.HELD)


def _was_collected(waiting: Waiting) -> bool:
    """Whether it tells of several already: collected again, it would tell of one."""
    past_decisions = (past for each in _held(waiting) for past in each.past_decisions)
    return any(past.status is DeliveryStatus.COLLECTED for past in past_decisions)


def release(waiting: Waiting, brief: Brief) -> Entry:
    """Return what a notification that waited comes to."""
    held = by_channel(_held(waiting))
    decisions = cancel(brief) if waiting.is_cancelled else decide(brief.case)
    notification = waiting.notification
    deliveries = tuple(turn(held[d.channel], brief.ask, d) for d in decisions)
    jobs, shared = follow_up(brief.ask, waiting.job.event_id, notification.id, deliveries)
    again = [d.until or NEVER for d in deliveries if d.status is DeliveryStatus.HELD]
    return Entry(
        job=waiting.job,
        next=Later(due_at=min(again)) if again else None,
        limits=claim_uses(brief, decisions),
        inbox_update=_appear(brief, waiting) if shows(decisions) else None,
        deliveries=deliveries,
        jobs=jobs,
        shared_jobs=tuple(each for each in shared if each.id != waiting.job.id),
    )


def _appear(brief: Brief, waiting: Waiting) -> InboxUpdate | None:
    count = waiting.notification.count
    return tell(brief, waiting.notification.id, count, count, is_first=True)


def cancel(brief: Brief) -> tuple[Decision, ...]:
    """Return the verdicts for an event that was called back."""
    return tuple(
        Decision(channel, Drop(ReasonCode.CANCELLED), "cancelled")
        for channel in brief.case.channels
    )
