"""Hands notifications to the provider of a channel, and writes down each attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from clarion.catalog.model import Channel
from clarion.errors import ClarionError
from clarion.events.decide.verdicts import Hold, Send, Verdict
from clarion.events.leases import LEASE_MS, Leases
from clarion.events.lost_claims import LostClaims
from clarion.events.model import DeadLetter, Job, JobOutcome, Reschedule
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.outcomes import make_jobs
from clarion.events.port import PipelinePorts
from clarion.events.sending import LONGEST_ATTEMPT_S, Sending, fail
from clarion.events.waiting import WaitingNotification, WaitingReader
from clarion.history.model import Delivery, DeliveryStatus, ReasonCode
from clarion.pacing import WorkSlices
from clarion.telemetry.logs import event_id
from clarion.telemetry.outages import log_failure

# Attempts in progress of one provider. An app may have as many as there is room left for others:
# alone it has half of them.
IN_FLIGHT = 2_000
# Fewer are started only if the app has nothing in progress: each lane should have its share.
LEAST_ROOM = 32
# For jobs without room: other workers of the pool have taken it since the claim.
FULL_MS = 1_000
# One that was sent to some devices may have others to be sent to: then there is a job for it.
_ARRIVED = frozenset({DeliveryStatus.SENT, DeliveryStatus.DELIVERED})
_OPEN = _ARRIVED | {DeliveryStatus.QUEUED}
# For devices that are left and wait for a change of preferences.
LOOK_AGAIN_MS = 86_400_000


class Attempts:
    """The running attempts of one pool, and the apps that wait for room in it."""

    def __init__(self, on_room: Callable[[str], None]) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._on_room = on_room
        self._counts: Counter[str] = Counter()
        self._without_room: set[str] = set()

    def find_room(self, app_id: str) -> int:
        """Return how many attempts of an app can be started. If none, it is resumed later."""
        own = self._counts[app_id]
        room = max((IN_FLIGHT - len(self.tasks) - own) // 2, 0)
        if room < LEAST_ROOM and own:
            room = 0
        if room == 0:
            self._without_room.add(app_id)
        return room

    def start(self, app_id: str, attempt: Coroutine[None, None, None]) -> None:
        """Run an attempt of an app in a task of its own."""
        task = asyncio.get_running_loop().create_task(attempt)
        self.tasks.add(task)
        self._counts[app_id] += 1
        task.add_done_callback(partial(self._end, app_id))

    def _end(self, app_id: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._counts[app_id] -= 1
        if not self._counts[app_id]:
            del self._counts[app_id]
        waiting, self._without_room = self._without_room, set()
        for each in waiting:
            if self.find_room(each):
                self._on_room(each)


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Handles the jobs that send; each in a task of its own, so a slow one delays no other."""

    ports: PipelinePorts
    waiting: WaitingReader
    writer: OutcomeWriter
    attempts: Mapping[Channel, Attempts]
    leases: Leases
    lost: LostClaims
    sending: Sending

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Start to deliver jobs of one app and channel; attempts continue after this returns."""
        room = self.attempts[Channel(jobs[0].pool)].find_room(jobs[0].app_id)
        later = Reschedule(due_at=self.ports.clock.now() + FULL_MS)
        delayed = [JobOutcome(job=job, next=later) for job in jobs[room:]]
        await self.writer.write([*delayed, *await self._start(jobs[:room])])

    async def finish(self) -> None:
        """Wait for running attempts, at most as long as one may take."""
        if tasks := [task for each in self.attempts.values() for task in each.tasks]:
            await asyncio.wait(tasks, timeout=LONGEST_ATTEMPT_S)

    async def _start(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        """Start a task for each that may be sent; return the outcomes of the others."""
        if not jobs:
            return []
        pairs = [(job, job.subject.partition("/")[2]) for job in jobs]
        waiting, outcomes = await self.waiting.read(pairs, _is_to_send)
        slices = WorkSlices()
        for each in waiting:
            if (outcome := self._decide(each)) is not None:
                outcomes.append(outcome)
            await slices.pause()
        return outcomes

    def _decide(self, waiting: WaitingNotification) -> JobOutcome | None:
        """Run the rules again, as a retry may come hours later. None: the task has started."""
        (delivery,), (decision,) = waiting.deliveries, waiting.decide()
        is_sent, has_arrived = isinstance(decision.verdict, Send), delivery.status in _ARRIVED
        if not has_arrived and (not is_sent or delivery.status is DeliveryStatus.FAILED):
            (delivery,) = waiting.apply((decision,))
        if is_sent:
            self.leases.hold(waiting.job)
            attempts = self.attempts[delivery.channel]
            attempts.start(waiting.job.app_id, self._send(waiting, delivery))
            return None
        if has_arrived:
            return _leave(waiting, decision.verdict)
        jobs, shared = make_jobs(waiting.prepared.request, waiting.job.event_id, (delivery,))
        return JobOutcome(job=waiting.job, deliveries=(delivery,), jobs=jobs, shared_jobs=shared)

    async def _send(self, waiting: WaitingNotification, delivery: Delivery) -> None:
        event_id.set(waiting.job.event_id)  # of a task of its own
        try:
            if not self.ports.is_live() and not await self._is_held(waiting.job):
                return
            attempt = self.sending.attempt
            outcome = await self.writer.run_safely(waiting.job, attempt, waiting, delivery)
            await self.writer.write([self._give_up(outcome, delivery)])
        except ClarionError as error:
            # The job is due again when its lease expires, or is released.
            self.lost.note()
            log_failure("delivery_not_recorded", error)
        finally:
            self.leases.release((waiting.job,))

    def _give_up(self, outcome: JobOutcome, delivery: Delivery) -> JobOutcome:
        """Return an outcome in which a delivery that cannot even be tried any more has failed."""
        if outcome.deliveries or not isinstance(outcome.next, DeadLetter):
            return outcome
        if delivery.status in _ARRIVED:
            return replace(outcome, next=None)
        failed = fail(delivery, ReasonCode.ATTEMPTS_EXHAUSTED, self.ports.clock.now())
        return replace(outcome, deliveries=(failed,))

    async def _is_held(self, job: Job) -> bool:
        """Whether the claim of a job still holds: this node may have been paused for long."""
        until = self.ports.clock.now() + LEASE_MS
        return bool(await self.ports.queue.renew((self.leases.renew(job),), until))


def _is_to_send(job: Job, delivery: Delivery) -> bool:
    """Whether it is the delivery of a job, and still to be sent; a failed one is replayed."""
    is_replayed = delivery.reason is ReasonCode.ATTEMPTS_EXHAUSTED
    is_open = delivery.status in _OPEN or is_replayed
    return delivery.channel == job.subject.partition("/")[0] and is_open


def _leave(waiting: WaitingNotification, verdict: Verdict) -> JobOutcome:
    """Return the outcome for devices that are left: what became of it at others stands."""
    if not isinstance(verdict, Hold):
        return JobOutcome(job=waiting.job)
    now = waiting.prepared.request.now
    until = now + LOOK_AGAIN_MS if verdict.until is None else verdict.until
    return JobOutcome(job=waiting.job, next=Reschedule(due_at=until))
