"""The event pipeline: built from its ports, and the life of its workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial

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
from clarion.events.port import PipelinePorts
from clarion.events.releaser import Releaser
from clarion.events.waiting import WaitingReader
from clarion.events.worker import JobHandler, Worker
from clarion.fields import REFUSED_SCHEMES
from clarion.telemetry.metrics import PipelineMetrics

# While one commits its batch, the other decides the next.
WORKERS = 2


class Pipeline:
    """Owns the workers. The API uses `intake` and `explainer`."""

    def __init__(
        self,
        ports: PipelinePorts,
        *,
        on_inbox_changed: Callable[[str, str], None],
        queue_age_limit_s: int,
        has_workers: bool,
        caps: FrequencyCaps,
        refused_schemes: Collection[str] = REFUSED_SCHEMES,
    ) -> None:
        self._queue, self._clock = ports.queue, ports.clock
        self.metrics = PipelineMetrics()
        backlog = Backlog(ports.queue, ports.clock, limit_s=queue_age_limit_s)
        self.watch_queue_age = backlog.watch
        self.metrics.watch_ages(backlog.ages_s)
        cases = CaseReader(ports, caps)
        waiting = WaitingReader(ports, cases)
        writer = OutcomeWriter(ports.outcomes, ports.clock, self.metrics, on_inbox_changed)
        decider = Decider(ports, cases, writer)
        self._deliverer = Deliverer(ports, waiting, writer)
        handlers: dict[JobKind, JobHandler] = {
            JobKind.EXPAND: Expander(ports, writer),
            JobKind.DECIDE: decider,
            JobKind.HELD: Releaser(waiting, writer),
            JobKind.DELIVER: self._deliverer,
            JobKind.DIGEST: Digester(ports.deliveries, waiting, writer),
        }
        handover = Handover()
        self.workers = [
            Worker(ports.queue, handover, decider, handlers, writer, ports.clock)
            for _ in range(WORKERS if has_workers else 0)
        ]
        self.intake = Intake(
            ports,
            handover if has_workers else None,
            on_accepted=self._note_accepted,
            is_overloaded=lambda: backlog.is_too_old,
            refused_schemes=refused_schemes,
        )
        self.explainer = Explainer(ports.catalog, cases, refused_schemes)

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

    def worker_loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the loops of the workers by name. Each ends after `stop`, and can be restarted."""
        return {f"worker_{n}": partial(self._run, each) for n, each in enumerate(self.workers, 1)}

    async def _run(self, worker: Worker) -> None:
        await worker.run()
        await self._deliverer.finish()

    def stop(self) -> None:
        """Let the workers end after their current batch and the attempts under way."""
        for worker in self.workers:
            worker.stop()
