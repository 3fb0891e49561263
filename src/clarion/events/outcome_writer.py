"""Writes the outcomes of jobs; turns errors into retries and, after five tries, dead letters."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clarion.clock import Clock
from clarion.errors import ClarionError, Overloaded, TooManyRequests
from clarion.events.model import DeadLetter, Job, JobOutcome, Reschedule
from clarion.events.port import Outcomes
from clarion.telemetry.logs import get_logger
from clarion.telemetry.metrics import PipelineMetrics

TRIES = 5
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 600.0
# Jobs that wait for the same thing are not all due at the same moment.
WAIT_SPREAD_S = 10.0


@dataclass(frozen=True, slots=True)
class OutcomeWriter:
    """Writes outcomes, counts them, and reports the inboxes that have changed."""

    outcomes: Outcomes
    clock: Clock
    metrics: PipelineMetrics
    on_inbox_changed: Callable[[str, str], None]

    async def run_safely(
        self, job: Job, work: Callable[..., Awaitable[JobOutcome]], *arguments: Any
    ) -> JobOutcome:
        """Return what the work returns, or the outcome of its failure."""
        try:
            return await work(*arguments)
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
        """Commit outcomes; return the jobs of those that were refused."""
        if not outcomes:
            return []
        stored = await self.outcomes.write(outcomes, self.clock.now())
        refused: list[Job] = []
        for outcome, is_stored in zip(outcomes, stored, strict=True):
            if is_stored:
                self._report(outcome)
            else:
                refused.append(outcome.job)
        return refused

    def _report(self, outcome: JobOutcome) -> None:
        if outcome.changes_inbox:
            self.on_inbox_changed(outcome.job.app_id, outcome.job.user_id)
        is_dead = isinstance(outcome.next, DeadLetter)
        next_ = outcome.next
        is_retry = isinstance(next_, Reschedule) and next_.error is not None
        if is_dead or (isinstance(next_, Reschedule) and is_retry and next_.is_failure):
            self.metrics.failures[outcome.job.kind, is_dead] += 1
        if is_retry:
            # Its deliveries keep their status.
            return
        for each in outcome.deliveries:
            self.metrics.deliveries[each.channel, each.status, each.reason] += 1


def back_off(tries: int) -> float:
    """Return the wait after so many tries: 1-2 s, 2-4 s, 4-8 s, … up to 600 s, at random."""
    longest = min(FIRST_WAIT_S * 2**tries, LONGEST_WAIT_S)
    return random.uniform(longest / 2, longest)  # noqa: S311 - jitter
