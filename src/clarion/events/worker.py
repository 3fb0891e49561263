"""The worker: claims what is due, lane by lane, and hands each kind of job to its stage."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from clarion.catalog.model import Priority
from clarion.errors import ClarionError
from clarion.events.handover import LEASE_MS
from clarion.events.model import Dead, Entry, JobKind
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clarion.clock import Clock
    from clarion.events.handover import Handover
    from clarion.events.model import Event, Job
    from clarion.events.outcome_writer import Recording
    from clarion.events.port import Queue

# How often a job may be claimed in vain: one that kills its worker must not do so for ever.
CLAIMS = 50
_TOKEN_STEP = 1_000
BATCH = 256
# Of a full batch each lane has its share, so that the low ones move too.
SHARES: Mapping[Priority, int] = {
    Priority.CRITICAL: 96,
    Priority.HIGH: 72,
    Priority.MEDIUM: 56,
    Priority.LOW: 32,
}
# While new events come without a pause, what is in the store has every so manieth turn.
CLAIM_EVERY = 4
# Something may be due that nobody told us of: of another node, or by the clock.
POLL_S = 0.5
AGAIN_S = 1.0


class Stage(Protocol):
    """What does a kind of job."""

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Do the jobs, all of one app, and write down what came of them."""
        ...


class FreshStage(Protocol):
    """What decides for events that were handed over."""

    async def handle_fresh(self, pairs: Sequence[tuple[Job, Event]]) -> None:
        """Decide for new events, of whatever apps."""
        ...


class Worker:
    """Works until it is stopped."""

    def __init__(
        self,
        *,
        queue: Queue,
        handover: Handover,
        deciding: FreshStage,
        stages: Mapping[JobKind, Stage],
        recording: Recording,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._handover = handover
        self._deciding = deciding
        self._turns = 0
        self._stages = stages
        self._recording = recording
        self._clock = clock
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._was_full: set[Priority] = set(Priority)

    def wake(self) -> None:
        """Look for work at once."""
        self._wake.set()

    def stop(self) -> None:
        """End after what is in hand."""
        self._is_stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Work until `stop`, and then until nothing more is handed over."""
        while not self._is_stopping or len(self._handover):
            self._wake.clear()
            try:
                if await self.work():
                    continue
            except ClarionError as error:
                # What was claimed comes back when its lease is over.
                get_logger().warning("work_waits", code=error.code)
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception:  # noqa: BLE001 - the worker outlives whatever a job brings
                get_logger().exception("work_failed")
                await asyncio.sleep(AGAIN_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()

    async def work(self) -> int:
        """Do what is new and what is due, at most a batch; return how many jobs that were."""
        fresh = self._handover.take(BATCH)
        if fresh:
            await self._deciding.handle_fresh(fresh)
        self._turns += 1
        if fresh and self._turns % CLAIM_EVERY:
            return len(fresh)
        return len(fresh) + await self._work_due()

    async def _work_due(self) -> int:
        now = self._clock.now()
        jobs = await self._queue.claim(self._quotas(), now=now, until=now + LEASE_MS)
        self._note_full(jobs)
        worn = [job for job in jobs if _is_worn(job)]
        if worn:
            error = f"given up after {CLAIMS} claims"
            await self._recording.write([Entry(job=job, next=Dead(error=error)) for job in worn])
        for kind, some in _sort([job for job in jobs if not _is_worn(job)]):
            await self._stages[kind].handle(some)
        return len(jobs)

    def _quotas(self) -> Mapping[Priority, int]:
        """Return each lane's share; what empty lanes leave goes to the full ones."""
        busy = [lane for lane in SHARES if lane in self._was_full]
        if not busy:
            return SHARES
        spare = (BATCH - sum(SHARES[lane] for lane in busy)) // len(busy)
        return {
            lane: SHARES[lane] + spare if lane in self._was_full else SHARES[lane]
            for lane in SHARES
        }

    def _note_full(self, jobs: Sequence[Job]) -> None:
        counts = dict.fromkeys(Priority, 0)
        for job in jobs:
            counts[job.lane] += 1
        self._was_full = {lane for lane, count in counts.items() if count >= SHARES[lane]}


def _is_worn(job: Job) -> bool:
    """Whether nothing ever comes of it: one that gets on, an audience say, is claimed for long."""
    return job.token % _TOKEN_STEP > CLAIMS


def _sort(jobs: Sequence[Job]) -> Iterator[tuple[JobKind, list[Job]]]:
    """Yield the jobs by kind and app: releases first, audiences last."""
    order = (JobKind.HELD, JobKind.DIGEST, JobKind.DECIDE, JobKind.DELIVER, JobKind.EXPAND)
    for kind in order:
        by_app: dict[str, list[Job]] = {}
        for job in jobs:
            if job.kind is kind:
                by_app.setdefault(job.app_id, []).append(job)
        for some in by_app.values():
            yield kind, some
