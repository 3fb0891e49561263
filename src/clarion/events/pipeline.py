"""The pipeline, put together from its ports."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.events.backlog import Backlog
from clarion.events.cases import Caps, Gathering
from clarion.events.decider import Deciding
from clarion.events.deliverer import Delivering
from clarion.events.digester import Digesting
from clarion.events.expander import Expanding
from clarion.events.explainer import Explaining
from clarion.events.handover import LEASE_MS, Handover
from clarion.events.intake import Accepting
from clarion.events.model import JobKind
from clarion.events.outcome_writer import Recording
from clarion.events.releaser import Releasing
from clarion.events.waiting import WaitingRoom
from clarion.events.worker import Stage, Worker
from clarion.telemetry.pipeline_metrics import PipelineMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clarion.catalog.model import Channel
    from clarion.catalog.port import Catalog
    from clarion.channels.port import ChannelProvider
    from clarion.clock import Clock
    from clarion.events.port import Deliveries, Events, Facts, Ledger, Queue
    from clarion.people.port import Users

NO_CAPS = Caps()
# While one batch is committed, the next is decided.
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class PipelinePorts:
    """What the pipeline stands on."""

    events: Events
    queue: Queue
    facts: Facts
    ledger: Ledger
    deliveries: Deliveries
    users: Users
    catalog: Catalog
    clock: Clock
    providers: Mapping[Channel, ChannelProvider]


class Pipeline:
    """The way of an event: its doors for the API, and the workers behind them."""

    def __init__(
        self,
        ports: PipelinePorts,
        *,
        on_inbox_changed: Callable[[str, str], None],
        queue_age_limit_s: int,
        has_workers: bool = True,
        caps: Caps = NO_CAPS,
    ) -> None:
        self.metrics = PipelineMetrics()
        recording = Recording(ports.ledger, ports.clock, self.metrics, on_inbox_changed)
        gathering = Gathering(
            users=ports.users, facts=ports.facts, providers=ports.providers, caps=caps
        )
        room = WaitingRoom(
            facts=ports.facts,
            deliveries=ports.deliveries,
            events=ports.events,
            catalog=ports.catalog,
            clock=ports.clock,
        )
        self._delivering = _build_delivering(ports, room, gathering, recording)
        deciding = _build_deciding(ports, gathering, recording)
        stages = _build_stages(ports, room, gathering, recording)
        stages[JobKind.DECIDE] = deciding
        stages[JobKind.DELIVER] = self._delivering
        handover = Handover()
        self._queue = ports.queue
        self._clock = ports.clock
        self.workers = [
            Worker(
                queue=ports.queue,
                handover=handover,
                deciding=deciding,
                stages=stages,
                recording=recording,
                clock=ports.clock,
            )
            for _ in range(WORKERS if has_workers else 0)
        ]
        self.backlog = Backlog(ports.queue, ports.clock, limit_s=queue_age_limit_s)
        self.metrics.watch_ages(self.backlog.read_ages)
        self.accepting = Accepting(
            events=ports.events,
            users=ports.users,
            catalog=ports.catalog,
            clock=ports.clock,
            handover=handover if has_workers else None,
            on_accepted=self._note_accepted,
            is_overloaded=lambda: self.backlog.is_too_old,
        )
        self.explaining = Explaining(ports.catalog, gathering)

    def _note_accepted(self, count: int) -> None:
        self.metrics.accepted += count
        self.wake()

    def wake(self) -> None:
        """Look for work at once: there is some."""
        for worker in self.workers:
            worker.wake()

    async def replan(self, app_id: str, user_id: str) -> None:
        """Decide anew for what waits for a person: they or their preferences have changed."""
        self.accepting.forget(app_id, user_id)
        await self._queue.wake_person(app_id, user_id, self._clock.now())
        self.wake()

    async def take_over(self) -> None:
        """Release what a server that was killed had claimed; only for who works alone."""
        now = self._clock.now()
        await self._queue.release_all(now=now, until=now + LEASE_MS)

    async def run(self) -> None:
        """Work until `stop`, and watch how old the queue gets."""
        watching = asyncio.get_running_loop().create_task(self.backlog.watch())
        try:
            await asyncio.gather(*(worker.run() for worker in self.workers))
            await self._delivering.finish()
        finally:
            watching.cancel()

    def stop(self) -> None:
        """End after what is in hand."""
        for worker in self.workers:
            worker.stop()


def _build_stages(
    ports: PipelinePorts, room: WaitingRoom, gathering: Gathering, recording: Recording
) -> dict[JobKind, Stage]:
    """Return what does each kind of job within the house."""
    events, clock = ports.events, ports.clock
    return {
        JobKind.EXPAND: Expanding(
            events=events, users=ports.users, queue=ports.queue, recording=recording, clock=clock
        ),
        JobKind.HELD: Releasing(room, gathering, recording),
        JobKind.DIGEST: Digesting(ports.deliveries, room, gathering, recording),
    }


def _build_deciding(ports: PipelinePorts, gathering: Gathering, recording: Recording) -> Deciding:
    return Deciding(
        events=ports.events,
        catalog=ports.catalog,
        gathering=gathering,
        recording=recording,
        clock=ports.clock,
    )


def _build_delivering(
    ports: PipelinePorts, room: WaitingRoom, gathering: Gathering, recording: Recording
) -> Delivering:
    return Delivering(
        room=room,
        gathering=gathering,
        recording=recording,
        providers=ports.providers,
        clock=ports.clock,
    )
