"""The worker: takes the turns of apps, claims their due jobs, and passes each to its handler."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.events.handover import Handover
from clarion.events.leases import LEASE_MS, Leases
from clarion.events.lost_claims import LostClaims
from clarion.events.model import TOKEN_STEP, DeadLetter, Job, JobKind, JobOutcome
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.port import AcceptedHandler, JobHandler, Queue
from clarion.events.quotas import BatchSize, Quotas
from clarion.events.turns import Turns
from clarion.telemetry.logs import event_id
from clarion.telemetry.outages import Work

# A job that was claimed this often without progress is a dead letter: it may kill its worker.
CLAIMS = 50
# While new events of an app keep coming, its stored jobs are claimed in every fourth turn only.
CLAIM_EVERY = 4
RETRY_S = 1.0
_ORDER = (JobKind.HELD, JobKind.DIGEST, JobKind.DECIDE, JobKind.DELIVER, JobKind.EXPAND)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers of one pool share. Only one pool gets new events through memory."""

    name: str
    turns: Turns
    quotas: Quotas
    attempts: Work = msgspec.field(default_factory=partial(Work, "events"))
    accepted: Handover | None = None
    decider: AcceptedHandler | None = None


@dataclass(slots=True, kw_only=True)
class Worker:
    """Works for the apps of one pool until it is stopped."""

    pool: Pool
    handlers: Mapping[JobKind, JobHandler]
    queue: Queue
    size: BatchSize
    writer: OutcomeWriter
    leases: Leases
    clock: Clock
    lost: LostClaims
    deleted_apps: Container[str] = ()
    _is_stopping: bool = field(default=False, init=False)

    def stop(self) -> None:
        """End `run` after the current turn, when nothing more is handed over."""
        self._is_stopping = True
        self.pool.turns.wake_all()

    async def run(self) -> None:
        """Work until `stop`, and then until the handover is empty. Can be run again if it fails."""
        while not self._is_stopping or self.pool.accepted:
            try:
                done = await self.work()
                self.pool.attempts.succeed()
                if done is None:
                    await self.pool.turns.wait()
            except Exception as error:  # noqa: BLE001 - the worker survives any error of a job
                # The claimed jobs are due again when their lease expires, or they are released.
                if isinstance(error, ServiceError):
                    self.lost.note()
                self.pool.attempts.fail(error)
                await asyncio.sleep(RETRY_S)

    async def work(self) -> int | None:
        """Do the next turn; return how many jobs that were, or None if no app has work."""
        app_id = self.pool.turns.take()
        if app_id is None:
            return None
        try:
            return await self._work_for(app_id)
        finally:
            event_id.set(None)
            self.pool.turns.end(app_id)

    async def _work_for(self, app_id: str) -> int:
        """Do new events and due jobs of an app, at most a batch of each."""
        accepted, due = await self._work_accepted(app_id), self.pool.turns.due
        if app_id not in due:
            return accepted
        if accepted and due[app_id] + 1 < CLAIM_EVERY:
            due[app_id] += 1
            self.pool.turns.add(app_id)
            return accepted
        return accepted + await self._work_due(app_id)

    async def _work_accepted(self, app_id: str) -> int:
        if not self.pool.accepted or self.pool.decider is None:
            return 0
        pairs = self.pool.accepted.take(app_id, self.size.take_turn(app_id))
        if pairs:
            try:
                await self.pool.decider.handle_accepted(pairs)
            finally:
                self.leases.release(job for job, _ in pairs)
        return len(pairs)

    async def _work_due(self, app_id: str) -> int:
        pool, now = self.pool, self.clock.now()
        # Before the claim: it may miss jobs that are added from here on.
        pool.turns.due.pop(app_id, None)
        if app_id in self.deleted_apps:
            return 0
        quotas = await pool.quotas.find(app_id)
        if not quotas:
            return 0
        with self.leases.claiming(now):
            claimed = await self.queue.claim(
                pool.name, app_id, quotas, now=now, until=now + LEASE_MS
            )
            jobs = self.leases.take(claimed)
        if pool.quotas.note_claimed(app_id, quotas, claimed):
            pool.turns.add_due(app_id)
        try:
            await self._handle(jobs)
        finally:
            self.leases.release(jobs)
        return len(claimed)

    async def _handle(self, jobs: Sequence[Job]) -> None:
        if stuck := [job for job in jobs if _is_stuck(job)]:
            dead = DeadLetter(error=f"given up after {CLAIMS} claims")
            await self.writer.write([JobOutcome(job=job, next=dead) for job in stuck])
        for kind, some in _group([job for job in jobs if not _is_stuck(job)]):
            await self.handlers[kind].handle(some)


def _is_stuck(job: Job) -> bool:
    """Whether it was claimed too often without progress; a large audience makes progress."""
    return job.token % TOKEN_STEP > CLAIMS


def _group(jobs: Sequence[Job]) -> Iterator[tuple[JobKind, list[Job]]]:
    """Yield the jobs by kind: held ones first, audiences last."""
    for kind in _ORDER:
        if some := [job for job in jobs if job.kind is kind]:
            yield kind, some
