"""The event pipeline: built from its ports, and the life of its workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from functools import partial

from clarion.catalog.model import Channel, Priority
from clarion.clock import SteadyClock
from clarion.errors import ClarionError
from clarion.events.arrivals import Arrivals
from clarion.events.backlog import Backlog
from clarion.events.cases import CaseReader, FindCaps
from clarion.events.clock_steps import ClockSteps
from clarion.events.decider import Decider
from clarion.events.deliverer import Attempts, Deliverer
from clarion.events.digester import Digester
from clarion.events.expander import Expander
from clarion.events.explainer import Explainer
from clarion.events.handover import Handover
from clarion.events.intake import Intake
from clarion.events.leases import LEASE_MS, RENEW_EVERY_S, RENEWED_MS, Leases
from clarion.events.lost_claims import LostClaims
from clarion.events.metrics import PipelineMetrics
from clarion.events.model import AUDIENCES, DECISIONS, NEVER, POOLS, Job, JobKind, JobOutcome
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.port import Decide, JobHandler, PipelinePorts
from clarion.events.quotas import BatchSize, SharedBatch
from clarion.events.releaser import Releaser
from clarion.events.sending import Sending
from clarion.events.tracing import JobTraces, TracedDecider, trace_decisions, trace_handlers
from clarion.events.turns import Turns
from clarion.events.waiting import WaitingReader
from clarion.events.worker import Pool, Worker
from clarion.fields import REFUSED_SCHEMES

# Turns that an app may have at once: while one commits its batch, another decides the next.
TURNS_PER_APP = 2
# Other apps find a free worker while one app has all the turns that it may have.
DECIDERS = 8
EXPANDERS = 2
# They only start the attempts, a turn of an app each.
SENDERS = 4
# Waiting deliveries that are made due when a provider was changed: in all, and in one commit. The
# others are tried at their time.
HASTENED_LIMIT, HASTENED_AT_ONCE = 20_000, 500
RENEWED_AT_ONCE = 500
_CHANNELS: list[Channel] = [channel for channel in Channel if channel is not Channel.IN_APP]


class Pipeline:
    """Owns the workers. The API uses `intake` and `explainer`."""

    def __init__(
        self,
        ports: PipelinePorts,
        *,
        on_inbox_changed: Callable[[str, str], None],
        queue_age_limit_s: int,
        app_waiting: int,
        has_workers: bool,
        find_caps: FindCaps,
        refused_schemes: Collection[str] = REFUSED_SCHEMES,
        deleted_apps: Container[str] = (),
    ) -> None:
        self._ports = ports
        self._deleted_apps = deleted_apps
        self._leases = Leases()
        self._lost = LostClaims(ports.queue, self._leases, ports.clock)
        self.metrics = PipelineMetrics(JobKind)
        self._cases = CaseReader(ports, find_caps)
        clock = ports.clock
        steps = ClockSteps(clock, ports.queue) if isinstance(clock, SteadyClock) else None
        self.follow_clock = steps.run if steps else None
        self.backlog = Backlog(
            ports.queue,
            ports.clock,
            age_limit_s=queue_age_limit_s,
            jobs_limit=app_waiting,
            on_due=self._note_due,
        )
        self.metrics.watch_queue(self.backlog)
        self._writer = self._make_writer(on_inbox_changed)
        self._turns, self._size = _make_turns(), BatchSize(ports.clock)
        handover = Handover(self._turns[DECISIONS], self._leases) if has_workers else None
        self.workers = self._make_workers(handover) if handover is not None else []
        self._handover = handover
        self._arrivals = self._make_arrivals() if has_workers else None
        self.intake = Intake(
            ports,
            self._arrivals,
            handover,
            on_decided=self._note_decided,
            on_accepted=self._note_accepted,
            on_unknown=self._lost.note,
            check_backlog=self.backlog.check,
            refused_schemes=refused_schemes,
        )
        self.explainer = Explainer(ports.catalog, ports.segments, self._cases, refused_schemes)

    def _make_writer(self, on_inbox_changed: Callable[[str, str], None]) -> OutcomeWriter:
        ports = self._ports
        return OutcomeWriter(
            ports.outcomes,
            ports.clock,
            self.metrics,
            on_inbox_changed,
            self._note_due,
            self._leases,
            ports.queue,
            ports.gateway,
            JobTraces(ports.tracer) if ports.tracer.is_on else None,
        )

    def _make_arrivals(self) -> Arrivals:
        decide: Decide = Decider(self._ports, self._cases, self._writer).decide
        if self._ports.tracer.is_on:
            decide = trace_decisions(decide)
        return Arrivals(self._ports, decide, self._size, self._turns[DECISIONS].is_free)

    def _make_workers(self, handover: Handover) -> list[Worker]:
        ports, turns, writer, leases = self._ports, self._turns, self._writer, self._leases
        waiting, size = WaitingReader(ports, self._cases), self._size
        attempts = {each: Attempts(turns[each.value].add_due) for each in _CHANNELS}
        decider = Decider(ports, self._cases, writer)
        expander = Expander(ports, writer, leases, self._note_due, self.backlog.is_full)
        deliverer = Deliverer(ports, waiting, writer, attempts, leases, self._lost, Sending(ports))
        handlers: dict[JobKind, JobHandler] = {
            JobKind.EXPAND: expander,
            JobKind.DECIDE: decider,
            JobKind.HELD: Releaser(waiting, writer),
            JobKind.DELIVER: deliverer,
            JobKind.DIGEST: Digester(ports.deliveries, waiting, writer),
        }
        handlers = trace_handlers(handlers, ports.events, ports.tracer)
        self.finish_deliveries = deliverer.finish
        decisions = Pool(
            name=DECISIONS,
            quotas=SharedBatch(size, on_drained=expander.resume),
            turns=turns[DECISIONS],
            accepted=handover,
            decider=TracedDecider(decider) if ports.tracer.is_on else decider,
        )
        audiences = Pool(name=AUDIENCES, quotas=expander, turns=turns[AUDIENCES])
        pools = [decisions, audiences, *_make_channel_pools(attempts, turns, size)]
        counts = {DECISIONS: DECIDERS, AUDIENCES: EXPANDERS}
        return [
            Worker(
                pool=pool,
                handlers=handlers,
                queue=ports.queue,
                size=size,
                writer=writer,
                leases=leases,
                clock=ports.clock,
                lost=self._lost,
                deleted_apps=self._deleted_apps,
            )
            for pool in pools
            for _ in range(counts.get(pool.name, SENDERS))
        ]

    def _note_decided(self, outcome: JobOutcome) -> None:
        self.metrics.accepted += 1
        self._writer.report(outcome)

    def _note_accepted(self, jobs: Sequence[Job]) -> None:
        self.metrics.accepted += len(jobs)
        self.backlog.count_accepted(jobs[0].app_id, len(jobs))
        now = self._ports.clock.now()
        for job in jobs:
            if not job.token and job.due_at <= now:
                self._note_due(job.pool, job.app_id)

    def _note_due(self, pool: str, app_id: str) -> None:
        """Give an app a turn; a node without workers has none."""
        if self.workers and pool in self._turns:
            self._turns[pool].add_due(app_id)

    def wake(self, app_id: str) -> None:
        """Let the workers look for due jobs of an app at once."""
        for pool in self._turns:
            self._note_due(pool, app_id)

    async def replan(self, app_id: str, user_id: str) -> None:
        """Decide again on a user's waiting notifications, after a change of user or preferences."""
        self.intake.forget_user(app_id, user_id)
        await self._ports.queue.wake_user(app_id, user_id, self._ports.clock.now())
        self._note_due(DECISIONS, app_id)

    async def hasten(self, app_id: str, channel: Channel, after_ms: int) -> None:
        """Make deliveries that wait for a retry on a channel due sooner, urgent ones first."""
        due_at, left = self._ports.clock.now() + after_ms, HASTENED_LIMIT
        for lane in sorted(Priority, reverse=True):
            found = HASTENED_AT_ONCE
            while left and found == HASTENED_AT_ONCE:
                at_once = min(HASTENED_AT_ONCE, left)
                found = await self._ports.queue.hasten(channel, lane, app_id, due_at, at_once)
                left -= found

    async def settle(self, pause_s: float) -> int:
        """Wait until everything that is due is done; return when the next job is due."""
        while True:
            next_at = await self.backlog.measure()
            if self._is_idle and next_at > self._ports.clock.now():
                return next_at
            await asyncio.sleep(pause_s)

    @property
    def _is_idle(self) -> bool:
        if self._handover or self._leases or not (self._arrivals is None or self._arrivals.is_idle):
            return False
        return all(each.is_idle for each in self._turns.values())

    async def take_over(self, node_id: str = "") -> None:
        """Release the jobs of a node that has stopped."""
        now = self._ports.clock.now()
        # With SQLite, the clock may have been set back since: then leases end long after now.
        until = now + 2 * LEASE_MS if node_id else NEVER
        await self._ports.queue.release_claims(node_id, now=now, until=until)

    async def renew_leases(self) -> None:
        """Extend the leases of jobs that take long, and release lost ones, until cancelled."""
        while True:
            # A lease that cannot be renewed ends; then a token refuses what comes too late.
            with contextlib.suppress(ClarionError):
                await self.renew_old_leases()
                await self._lost.release()
            await asyncio.sleep(RENEW_EVERY_S)

    async def renew_old_leases(self) -> None:
        """Extend the leases that end soon of jobs that are still worked on."""
        now, leases = self._ports.clock.now(), self._leases
        ending = leases.find_ending(now + RENEWED_MS)
        for start in range(0, len(ending), RENEWED_AT_ONCE):
            some = ending[start : start + RENEWED_AT_ONCE]
            leases.prolong(await self._ports.queue.renew(some, now + LEASE_MS), now + LEASE_MS)

    def worker_loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the loops of the workers by name. Each ends after `stop`, and can be restarted."""
        return {f"worker_{n}": partial(self._run, each) for n, each in enumerate(self.workers, 1)}

    async def _run(self, worker: Worker) -> None:
        await worker.run()
        await self.finish_deliveries()

    def stop(self) -> None:
        """Stop the workers after their current turn and the running attempts."""
        for worker in self.workers:
            worker.stop()


def _make_turns() -> dict[str, Turns]:
    return {pool: Turns(per_app=TURNS_PER_APP if pool == DECISIONS else 1) for pool in POOLS}


def _make_channel_pools(
    attempts: Mapping[Channel, Attempts], turns: Mapping[str, Turns], size: BatchSize
) -> list[Pool]:
    return [
        Pool(
            name=channel.value,
            quotas=SharedBatch(size, find_room=some.find_room),
            turns=turns[channel.value],
        )
        for channel, some in attempts.items()
    ]
