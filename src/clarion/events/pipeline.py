"""The event pipeline: built from its ports, and the life of its workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clarion.events.backlog import Backlog
from clarion.events.cases import CaseReader, FrequencyCaps
from clarion.events.decider import Decider
from clarion.events.deliverer import Deliverer
from clarion.events.digester import Digester
from clarion.events.expander import Expander
from clarion.events.explainer import Explainer
from clarion.events.handover import LEASE_MS, Handover
from clarion.events.intake import Intake
from clarion.events.model import JobKind
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.releaser import Releaser
from clarion.events.waiting import WaitingReader
from clarion.events.worker import Worker
from clarion.telemetry.metrics import PipelineMetrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from clarion.catalog.model import Channel
    from clarion.catalog.port import Catalog
    from clarion.channels.port import ChannelProvider
    from clarion.clock import Clock
    from clarion.events.port import Deliveries, Events, NotificationReader, Outcomes, Queue
    from clarion.events.worker import JobHandler
    from clarion.people.port import Users

NO_CAPS = FrequencyCaps()
# While one commits its batch, the other decides the next.
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class PipelinePorts:
    """What the pipeline reads and writes."""

    events: Events
    queue: Queue
    notifications: NotificationReader
    outcomes: Outcomes
    deliveries: Deliveries
    users: Users
    catalog: Catalog
    clock: Clock
    providers: Mapping[Channel, ChannelProvider]


class _Handlers(NamedTuple):
    decider: Decider
    deliverer: Deliverer
    digester: Digester
    expander: Expander
    releaser: Releaser

    def by_kind(self) -> dict[JobKind, JobHandler]:
        return {
            JobKind.EXPAND: self.expander,
            JobKind.DECIDE: self.decider,
            JobKind.HELD: self.releaser,
            JobKind.DELIVER: self.deliverer,
            JobKind.DIGEST: self.digester,
        }


class Pipeline:
    """Owns the workers. The API uses `intake` and `explainer`."""

    def __init__(
        self,
        ports: PipelinePorts,
        *,
        on_inbox_changed: Callable[[str, str], None],
        queue_age_limit_s: int,
        has_workers: bool = True,
        caps: FrequencyCaps = NO_CAPS,
    ) -> None:
        self._queue = ports.queue
        self._clock = ports.clock
        self.metrics = PipelineMetrics()
        self._backlog = Backlog(ports.queue, ports.clock, limit_s=queue_age_limit_s)
        self.metrics.watch_ages(self._backlog.ages_s)
        cases = _build_cases(ports, caps)
        writer = OutcomeWriter(ports.outcomes, ports.clock, self.metrics, on_inbox_changed)
        handlers = _build_handlers(ports, cases, writer)
        handover = Handover()
        self._deliverer = handlers.deliverer
        self.workers = [
            _build_worker(ports, handlers, writer, handover)
            for _ in range(WORKERS if has_workers else 0)
        ]
        self.intake = self._build_intake(ports, handover if has_workers else None)
        self.explainer = Explainer(catalog=ports.catalog, cases=cases)

    def _build_intake(self, ports: PipelinePorts, handover: Handover | None) -> Intake:
        return Intake(
            events=ports.events,
            users=ports.users,
            catalog=ports.catalog,
            clock=ports.clock,
            handover=handover,
            on_accepted=self._note_accepted,
            is_overloaded=lambda: self._backlog.is_too_old,
        )

    def _note_accepted(self, count: int) -> None:
        self.metrics.accepted += count
        self.wake()

    def wake(self) -> None:
        """Let the workers look for due jobs at once."""
        for worker in self.workers:
            worker.wake()

    async def replan(self, app_id: str, user_id: str) -> None:
        """Decide again what waits for a user: the user or their preferences have changed."""
        self.intake.forget_user(app_id, user_id)
        await self._queue.wake_user(app_id, user_id, self._clock.now())
        self.wake()

    async def take_over(self) -> None:
        """Release the jobs that a killed process had claimed; only if this one works alone."""
        now = self._clock.now()
        await self._queue.release_claims(now=now, until=now + LEASE_MS)

    async def watch_queue_age(self) -> None:
        """Measure the age of the queue once a second, until cancelled."""
        await self._backlog.watch()

    def worker_loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the loops of the workers by name. Each ends after `stop`, and can be restarted."""
        return {f"worker_{number}": self._loop_of(w) for number, w in enumerate(self.workers, 1)}

    def _loop_of(self, worker: Worker) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await worker.run()
            await self._deliverer.finish()

        return run

    def stop(self) -> None:
        """Let the workers end after their current batch and the attempts under way."""
        for worker in self.workers:
            worker.stop()


def _build_cases(ports: PipelinePorts, caps: FrequencyCaps) -> CaseReader:
    return CaseReader(
        users=ports.users, notifications=ports.notifications, providers=ports.providers, caps=caps
    )


def _build_waiting(ports: PipelinePorts) -> WaitingReader:
    return WaitingReader(
        notifications=ports.notifications,
        deliveries=ports.deliveries,
        events=ports.events,
        catalog=ports.catalog,
        clock=ports.clock,
    )


def _build_handlers(ports: PipelinePorts, cases: CaseReader, writer: OutcomeWriter) -> _Handlers:
    events, users, clock = ports.events, ports.users, ports.clock
    waiting = _build_waiting(ports)
    return _Handlers(
        decider=Decider(
            events=events, catalog=ports.catalog, cases=cases, writer=writer, clock=clock
        ),
        deliverer=Deliverer(
            waiting=waiting, cases=cases, writer=writer, providers=ports.providers, clock=clock
        ),
        digester=Digester(deliveries=ports.deliveries, waiting=waiting, cases=cases, writer=writer),
        expander=Expander(
            events=events, users=users, queue=ports.queue, writer=writer, clock=clock
        ),
        releaser=Releaser(waiting=waiting, cases=cases, writer=writer),
    )


def _build_worker(
    ports: PipelinePorts, handlers: _Handlers, writer: OutcomeWriter, handover: Handover
) -> Worker:
    return Worker(
        queue=ports.queue,
        handover=handover,
        decider=handlers.decider,
        handlers=handlers.by_kind(),
        writer=writer,
        clock=ports.clock,
    )
