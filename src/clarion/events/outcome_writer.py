"""Writes the outcomes of jobs; turns errors into retries and, after five tries, dead letters."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from clarion.clock import Clock
from clarion.errors import (
    ClarionError,
    Overloaded,
    ServiceError,
    StorageFull,
    StoreUnavailable,
    TooManyRequests,
)
from clarion.events.leases import LEASE_MS, Leases
from clarion.events.metrics import PipelineMetrics
from clarion.events.model import DeadLetter, Job, JobOutcome, Reschedule
from clarion.events.port import Outcomes, Queue
from clarion.events.tracing import JobTraces
from clarion.history.model import DeliveryStatus
from clarion.push.port import Dispatch
from clarion.telemetry.logs import event_id, get_logger

TRIES = 5
_ARRIVED = frozenset({DeliveryStatus.SENT, DeliveryStatus.DELIVERED})
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 600.0
# Jobs that wait for the same thing are not all due at the same moment.
WAIT_SPREAD_S = 10.0


# How long outcomes wait for a store that is overloaded, full or away: five minutes. The message
# of an outcome that is never written may have been sent, and would be sent again.
_WAITS_S = (0.1, 0.2, 0.4, 0.8, *(1.0,) * 300)


_Passing = Overloaded | StoreUnavailable | StorageFull


@dataclass(slots=True)
class _Written:
    """What became of the outcomes that were not stored."""

    refused: list[JobOutcome] = field(default_factory=list)
    renewed: list[JobOutcome] = field(default_factory=list)  # claimed again while written
    unwritten: list[JobOutcome] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)  # jobs of unwritten ones that may be stored
    error: ClarionError | None = None


@dataclass(frozen=True, slots=True)
class OutcomeWriter:
    """Writes outcomes, counts them, and reports changed inboxes and new jobs."""

    outcomes: Outcomes
    clock: Clock
    metrics: PipelineMetrics
    on_inbox_changed: Callable[[str, str], None]
    on_due: Callable[[str, str], None]
    leases: Leases
    queue: Queue
    gateway: Dispatch | None = None  # None: nothing is sent to devices
    trace: JobTraces | None = None  # None: traces are off

    async def run_safely(
        self, job: Job, work: Callable[..., Awaitable[JobOutcome]], *arguments: Any
    ) -> JobOutcome:
        """Return what the work returns, or the outcome of its failure."""
        event_id.set(job.event_id)  # until the next job, or the end of the turn
        try:
            working = work(*arguments)
            return await (working if self.trace is None else self.trace(job, working))
        except Exception as error:  # noqa: BLE001 - a job that fails must not fail its batch
            return self.fail(job, error)

    def fail(self, job: Job, error: Exception) -> JobOutcome:
        """Return the outcome of a failed try: a retry, or a dead letter."""
        message = error.detail if isinstance(error, ClarionError) else type(error).__name__
        if isinstance(error, (TooManyRequests, Overloaded)):
            return JobOutcome(job=job, next=self._wait(message, error.retry_after_s))
        if not isinstance(error, ClarionError):
            get_logger().error("job_failed", kind=job.kind, job=job.id, exc_info=error)
        return JobOutcome(job=job, next=self.retry(job, message))

    def _wait(self, message: str, least_s: float) -> Reschedule:
        """Return when a job is tried again that could not be tried: its app used up its time."""
        wait_s = random.uniform(least_s, least_s + WAIT_SPREAD_S)  # noqa: S311 - jitter
        due_at = self.clock.now() + int(wait_s * 1000)
        return Reschedule(due_at=due_at, error=message, is_failure=False)

    def retry(self, job: Job, error: str, after_s: float | None = None) -> Reschedule | DeadLetter:
        """Return when a job that failed is tried again; after the last try, a dead letter."""
        if job.tries + 1 >= TRIES:
            return DeadLetter(error=error)
        wait_s = after_s if after_s is not None else back_off(job.tries)
        return Reschedule(due_at=self.clock.now() + int(wait_s * 1000), error=error)

    async def write(self, outcomes: Sequence[JobOutcome]) -> list[Job]:
        """Commit outcomes; return the jobs of those that were refused.

        If the store is overloaded or unavailable, outcomes are written again for a while. If that
        fails for some, the others are reported before the error is raised.
        """
        refused: list[Job] = []
        unknown: set[str] = set()
        for wait_s in (*_WAITS_S, None):
            written = await self._write_once(outcomes)
            refused += await self._find_refused(written.refused, unknown)
            unknown |= written.unknown
            outcomes = [*written.renewed, *written.unwritten]
            if not outcomes:
                return refused
            if wait_s is None or not isinstance(written.error, _Passing | None):
                break
            if written.error is not None:
                await asyncio.sleep(wait_s)
        if written.error is None:
            return [*refused, *(each.job for each in outcomes)]
        raise written.error

    async def _write_once(self, outcomes: Sequence[JobOutcome]) -> _Written:
        written = _Written()
        if not outcomes:
            return written
        outcomes = self._renew(outcomes)
        stored = await self.outcomes.write(outcomes, self.clock.now())
        for outcome, result in zip(outcomes, stored, strict=True):
            if result is True:
                self.report(outcome)
                await self._announce(outcome)
            elif result is not False:
                written.unwritten.append(outcome)
                if isinstance(result, StoreUnavailable):
                    written.unknown.add(outcome.job.id)
                written.error = _choose(written.error, result)
            elif self.leases.is_renewed(outcome.job):
                written.renewed.append(outcome)
            else:
                written.refused.append(outcome)
        return written

    async def _find_refused(
        self, refused: Sequence[JobOutcome], unknown: AbstractSet[str]
    ) -> list[Job]:
        """Return the jobs to be done again: those that this node still holds.

        An outcome of another job may have been stored by an earlier write whose answer was lost:
        then it is published now.
        """
        doubtful = [each for each in refused if each.job.id in unknown]
        if not doubtful:
            return [each.job for each in refused]
        held = await self._find_held([each.job for each in doubtful])
        for each in doubtful:
            if each.job.id not in held:
                self._publish(each)
                await self._announce(each, is_repeat=True)
        left = (each.job for each in refused)
        return [job for job in left if job.id in held or job.id not in unknown]

    async def _find_held(self, jobs: Sequence[Job]) -> AbstractSet[str]:
        for wait_s in _WAITS_S:
            try:
                return await self.queue.renew(jobs, self.clock.now() + LEASE_MS)
            except ServiceError:  # the store is away again
                await asyncio.sleep(wait_s)
        return {job.id for job in jobs}  # their tokens decide

    async def _announce(self, outcome: JobOutcome, *, is_repeat: bool = False) -> None:
        for message, status, _ in outcome.messages:
            if self.gateway is not None:
                await self.gateway.announce(message, status, is_repeat=is_repeat)

    def _publish(self, outcome: JobOutcome) -> None:
        if outcome.changes_inbox:
            self.on_inbox_changed(outcome.job.app_id, outcome.job.user_id)
        for job in outcome.jobs:
            self.on_due(job.pool, job.app_id)

    def _renew(self, outcomes: Sequence[JobOutcome]) -> Sequence[JobOutcome]:
        jobs = self.leases.renew_all([each.job for each in outcomes])
        pairs = zip(outcomes, jobs, strict=True)
        return [each if each.job is job else replace(each, job=job) for each, job in pairs]

    def report(self, outcome: JobOutcome) -> None:
        """Count an outcome that is stored, and publish it."""
        self._publish(outcome)
        is_dead = isinstance(outcome.next, DeadLetter)
        next_ = outcome.next
        is_retry = isinstance(next_, Reschedule) and next_.error is not None
        if is_dead or (isinstance(next_, Reschedule) and is_retry and next_.is_failure):
            self.metrics.failures[outcome.job.kind, is_dead] += 1
        if is_retry:
            # Its deliveries keep their status.
            return
        if outcome.final_status is not None:
            self.metrics.decided[outcome.final_status] += 1
        for each in outcome.deliveries:
            self.metrics.deliveries[each.channel, each.status, each.reason] += 1
            if each.status in _ARRIVED:
                waited_s = max(0, self.clock.now() - each.decided_at) / 1000
                self.metrics.delivery_times.add(waited_s, (each.channel,))


def _choose(first: ClarionError | None, second: ClarionError) -> ClarionError:
    """Return the error to raise for all; a temporary one only if there is no other."""
    return second if first is None or isinstance(first, _Passing) else first


def back_off(tries: int) -> float:
    """Return the random wait before the next try: 1-2 s, 2-4 s, 4-8 s, … up to 600 s."""
    longest = min(FIRST_WAIT_S * 2**tries, LONGEST_WAIT_S)
    return random.uniform(longest / 2, longest)  # noqa: S311 - jitter
