"""Entries into the ledger; what a job could not do is written down, and tried again or buried."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from clarion.errors import ClarionError
from clarion.events.model import Dead, Entry, Later
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clarion.clock import Clock
    from clarion.events.model import Job
    from clarion.events.port import Ledger
    from clarion.telemetry.pipeline_metrics import PipelineMetrics

TRIES = 5
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 600.0


class Recording:
    """Writes entries, tells the open streams, and turns failures into later tries."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        metrics: PipelineMetrics,
        on_inbox_changed: Callable[[str, str], None],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._on_inbox_changed = on_inbox_changed

    def attempt(self, job: Job, work: Callable[..., Entry], *of: Any) -> Entry:
        """Return what the work makes of a job, or the entry that says that it failed."""
        try:
            return work(*of)
        except Exception as error:  # noqa: BLE001 - a job that fails must not spoil the batch
            return self.fail(job, error)

    def fail(self, job: Job, error: Exception) -> Entry:
        """Return the entry of a try that failed: the job comes back, or is a dead letter."""
        message = error.detail if isinstance(error, ClarionError) else type(error).__name__
        if not isinstance(error, ClarionError):
            get_logger().error("job_failed", kind=job.kind, job=job.id, exc_info=error)
        return Entry(job=job, next=self.next_try(job, message))

    def next_try(self, job: Job, error: str, after_s: float | None = None) -> Later | Dead:
        """Return when a job that failed is tried again, if it is."""
        if job.tries + 1 >= TRIES:
            return Dead(error=error)
        wait_s = after_s if after_s is not None else back_off(job.tries)
        return Later(due_at=self._clock.now() + int(wait_s * 1000), error=error)

    async def write(self, entries: Sequence[Entry]) -> list[Job]:
        """Commit entries; return the jobs of those that were refused."""
        if not entries:
            return []
        held = await self._ledger.write(entries, self._clock.now())
        for entry, holds in zip(entries, held, strict=True):
            if holds:
                self._tell(entry)
        return [e.job for e, holds in zip(entries, held, strict=True) if not holds]

    def _tell(self, entry: Entry) -> None:
        """Count what was written, and tell the open streams."""
        if entry.changes_inbox:
            self._on_inbox_changed(entry.job.app_id, entry.job.user_id)
        is_dead = isinstance(entry.next, Dead)
        is_tried_again = isinstance(entry.next, Later) and entry.next.error is not None
        if is_dead or is_tried_again:
            self._metrics.failures[entry.job.kind, is_dead] += 1
        if is_tried_again:
            # Its deliveries are what they were.
            return
        for each in entry.deliveries:
            self._metrics.deliveries[each.channel, each.status, each.reason] += 1


def back_off(tries: int) -> float:
    """Return how long to wait after so many tries: doubled each time, capped, with jitter."""
    longest = min(FIRST_WAIT_S * 2**tries, LONGEST_WAIT_S)
    return random.uniform(longest / 2, longest)  # noqa: S311 - jitter
