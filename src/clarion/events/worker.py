"""The worker: claims due jobs lane by lane, and passes each kind to its handler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clarion.catalog.model import Priority
from clarion.clock import Clock
from clarion.errors import ClarionError
from clarion.events.decider import Decider
from clarion.events.handover import LEASE_MS, Handover
from clarion.events.model import DeadLetter, Job, JobKind, JobOutcome
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.port import Queue
from clarion.telemetry.logs import get_logger

# After so many claims without progress a job is a dead letter: it may be one that kills its worker.
CLAIMS = 50
_TOKEN_STEP = 1_000
BATCH = 256
# Each lane has its share of a full batch, so that the low ones make progress, too.
SHARES: Mapping[Priority, int] = {
    Priority.CRITICAL: 96,
    Priority.HIGH: 72,
    Priority.MEDIUM: 56,
    Priority.LOW: 32,
}
# While new events keep coming, stored jobs are claimed in every fourth round only.
CLAIM_EVERY = 4
# Covers jobs of other nodes, and those that become due by the clock: nothing wakes the worker then.
POLL_S = 0.5
RETRY_S = 1.0
_ORDER = (JobKind.HELD, JobKind.DIGEST, JobKind.DECIDE, JobKind.DELIVER, JobKind.EXPAND)


class JobHandler(Protocol):
    """Does one kind of job."""

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Do the jobs, all of one app, and write their outcomes."""


@dataclass(slots=True)
class Worker:
    """Works until it is stopped."""

    queue: Queue
    handover: Handover
    decider: Decider
    handlers: Mapping[JobKind, JobHandler]
    writer: OutcomeWriter
    clock: Clock
    _rounds: int = field(default=0, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _full_lanes: set[Priority] = field(default_factory=lambda: set(Priority), init=False)

    def wake(self) -> None:
        """Look for work at once."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` after the current batch, when nothing more is handed over."""
        self._is_stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Work until `stop`, and then until the handover is empty. Can be run again if it fails."""
        while not self._is_stopping or len(self.handover):
            self._wake.clear()
            try:
                if await self.work():
                    continue
            except Exception as error:  # noqa: BLE001 - the worker survives any error of a job
                # The claimed jobs are due again when their lease expires.
                _log_failure(error)
                await asyncio.sleep(RETRY_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()

    async def work(self) -> int:
        """Do new events and due jobs, at most a batch of each; return how many jobs that were."""
        accepted = self.handover.take(BATCH)
        if accepted:
            await self.decider.handle_accepted(accepted)
        self._rounds += 1
        if accepted and self._rounds % CLAIM_EVERY:
            return len(accepted)
        return len(accepted) + await self._work_due()

    async def _work_due(self) -> int:
        now = self.clock.now()
        jobs = await self.queue.claim(self._quotas(), now=now, until=now + LEASE_MS)
        self._note_full_lanes(jobs)
        if stuck := [job for job in jobs if _is_stuck(job)]:
            dead = DeadLetter(error=f"given up after {CLAIMS} claims")
            await self.writer.write([JobOutcome(job=job, next=dead) for job in stuck])
        for kind, some in _group([job for job in jobs if not _is_stuck(job)]):
            await self.handlers[kind].handle(some)
        return len(jobs)

    def _quotas(self) -> Mapping[Priority, int]:
        """Return each lane's share; what empty lanes leave goes to the full ones."""
        full = self._full_lanes
        if not full:
            return SHARES
        spare = (BATCH - sum(SHARES[lane] for lane in full)) // len(full)
        return {lane: share + spare * (lane in full) for lane, share in SHARES.items()}

    def _note_full_lanes(self, jobs: Sequence[Job]) -> None:
        counts = dict.fromkeys(Priority, 0)
        for job in jobs:
            counts[job.lane] += 1
        self._full_lanes = {lane for lane, count in counts.items() if count >= SHARES[lane]}


def _log_failure(error: Exception) -> None:
    if isinstance(error, ClarionError):
        get_logger().warning("work_delayed", code=error.code)
    else:
        get_logger().error("work_failed", exc_info=error)


def _is_stuck(job: Job) -> bool:
    """Whether it was claimed too often without progress; a large audience makes progress."""
    return job.token % _TOKEN_STEP > CLAIMS


def _group(jobs: Sequence[Job]) -> Iterator[tuple[JobKind, list[Job]]]:
    """Yield the jobs by kind and app: held ones first, audiences last."""
    for kind in _ORDER:
        by_app: dict[str, list[Job]] = {}
        for job in jobs:
            if job.kind is kind:
                by_app.setdefault(job.app_id, []).append(job)
        for some in by_app.values():
            yield kind, some
