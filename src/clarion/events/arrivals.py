"""Decides events before they are stored, so that an event and its outcome are one commit.

Those of an app that come at the same time are decided together, with one read of each kind of
fact. While one batch is decided and another one commits, the next one collects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import TypeVar

from clarion.catalog.model import Channel
from clarion.events.model import AudienceKind, Event, Job, JobOutcome
from clarion.events.port import Decide, PipelinePorts, Undecided
from clarion.events.quotas import BatchSize
from clarion.events.turns import Turns
from clarion.telemetry.outages import Work

T = TypeVar("T")
TURNS_PER_APP = 2
# Batches that are decided at a time. On SQLite one hardly ever waits; PostgreSQL answers while
# others are decided.
TASKS = 8


@dataclass(slots=True)
class _Batch:
    app_id: str
    left: int  # requests that have not stored theirs yet


@dataclass(slots=True)
class _Arrival:
    undecided: Undecided
    outcome: asyncio.Future[JobOutcome | None]
    batch: _Batch | None = None


class Arrivals:
    """Decides events for one user each, while the workers have nothing else to do for their app."""

    def __init__(
        self, ports: PipelinePorts, decide: Decide, size: BatchSize, is_free: Callable[[str], bool]
    ) -> None:
        """`is_free` says whether a worker has nothing to do, and nothing of an app waits.

        `size` is shared with the workers: an app whose events are decided here is active, too.
        """
        self._ports = ports
        self._decide = decide
        self._size = size
        self._is_free = is_free
        self._attempts = Work("arrivals")
        self._turns = Turns(per_app=TURNS_PER_APP)
        self._waiting: dict[str, list[_Arrival]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0  # of the tasks, those that will look for more

    @property
    def is_idle(self) -> bool:
        """Whether no job is waiting or in progress."""
        return self._turns.is_idle

    async def accept(
        self, job: Job, event: Event, store: Callable[[JobOutcome], Awaitable[T]]
    ) -> T | None:
        """Decide an event and store its outcome; None if the workers must decide it."""
        if (
            event.scheduled_at is not None
            or event.audience.kind is not AudienceKind.USER
            or not self._is_free(event.app_id)
        ):
            return None
        entry = await self._ports.catalog.find(event.app_id, event.type)
        # Requests wait, also those of other apps: what takes long to render is not for them.
        quick = entry and entry.find_quick(Channel.IN_APP)
        if quick is None:
            return None
        arrival = _Arrival((job, event, quick), asyncio.get_running_loop().create_future())
        self._waiting.setdefault(event.app_id, []).append(arrival)
        self._give_turn(event.app_id)
        try:
            outcome = await arrival.outcome
            return None if outcome is None else await store(outcome)
        finally:
            self._end(arrival.batch)

    def _give_turn(self, app_id: str) -> None:
        self._turns.add(app_id)
        if self._turns.is_ready and self._running < TASKS:
            self._running += 1
            # It works for several requests: it must not have the context of one.
            task = asyncio.get_running_loop().create_task(self._work(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _end(self, batch: _Batch | None) -> None:
        if batch is None:
            return
        batch.left -= 1
        if batch.left == 0:
            self._turns.end(batch.app_id)
            if batch.app_id in self._waiting:
                self._give_turn(batch.app_id)

    async def _work(self) -> None:
        """Decide a batch of each app in turn, until none waits."""
        try:
            while (app_id := self._turns.take()) is not None:
                await self._decide_batch(self._take(app_id))
        finally:
            self._running -= 1

    def _take(self, app_id: str) -> Sequence[_Arrival]:
        waiting = [each for each in self._waiting.pop(app_id, ()) if not each.outcome.done()]
        count = self._size.take_turn(app_id)
        if len(waiting) > count:
            self._waiting[app_id] = waiting[count:]
            self._turns.add(app_id)
        arrivals = waiting[:count]
        batch = _Batch(app_id, len(arrivals))
        for each in arrivals:
            each.batch = batch
        if not arrivals:  # these requests were cancelled
            self._turns.end(app_id)
        return arrivals

    async def _decide_batch(self, arrivals: Sequence[_Arrival]) -> None:
        decided: dict[str, JobOutcome] = {}
        try:
            outcomes, _ = await self._decide([each.undecided for each in arrivals])
            decided = {each.job.id: each for each in outcomes if each.next is None}
        except Exception as error:  # noqa: BLE001 - no request may wait forever
            self._attempts.fail(error)
        for each in arrivals:
            if not each.outcome.done():  # it is if the request was cancelled
                each.outcome.set_result(decided.get(each.undecided[0].id))
