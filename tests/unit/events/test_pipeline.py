"""The loops of the pipeline: one for each worker and one for the backlog, each restartable."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from clarion.catalog.model import Priority
from clarion.errors import Overloaded, StoreUnavailable
from clarion.events.cases import FrequencyCaps
from clarion.events.model import Event, Job
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from tests.factories import NOW, FixedClock
from tests.pipeline import make_event

AGE_LIMIT_S = 60


class EmptyQueue:
    """The part of the `Queue` port that an idle pipeline uses; it sets events when it is called."""

    def __init__(self) -> None:
        self.claimed = asyncio.Event()
        self.measured = asyncio.Event()
        self.due_at: int | None = None
        self.error: Exception | None = None

    async def claim(
        self, quotas: Mapping[Priority, int], *, now: int, until: int
    ) -> tuple[Job, ...]:
        assert (sum(quotas.values()), until > now) == (256, True)
        self.claimed.set()
        return ()

    async def oldest_due_at(self, lane: Priority) -> int | None:
        if lane is max(Priority) or self.error:
            self.measured.set()
        if self.error is not None:
            raise self.error
        return self.due_at


class NoEvents:
    """The `Events` port that accepts everything."""

    async def accept(self, events: Sequence[Event], jobs: Sequence[Job], once: object) -> None:
        assert (len(events), once) == (len(jobs), None)


@pytest.fixture
def queue() -> EmptyQueue:
    return EmptyQueue()


def make_pipeline(queue: EmptyQueue, *, has_workers: bool = True) -> Pipeline:
    unused: Any = None
    ports = PipelinePorts(
        events=NoEvents(),  # type: ignore[arg-type]
        queue=queue,  # type: ignore[arg-type]
        notifications=unused,
        outcomes=unused,
        deliveries=unused,
        users=unused,
        catalog=unused,
        clock=FixedClock(),
        providers={},
    )
    return Pipeline(
        ports,
        on_inbox_changed=lambda *_: None,
        queue_age_limit_s=AGE_LIMIT_S,
        has_workers=has_workers,
        caps=FrequencyCaps(),
    )


async def test_there_is_a_loop_for_each_worker(queue: EmptyQueue) -> None:
    assert set(make_pipeline(queue).worker_loops()) == {"worker_1", "worker_2"}
    assert set(make_pipeline(queue, has_workers=False).worker_loops()) == set()


async def test_a_worker_ends_after_stop_and_can_be_run_again_before(queue: EmptyQueue) -> None:
    pipeline = make_pipeline(queue)
    work = pipeline.worker_loops()["worker_1"]
    for _ in range(2):
        queue.claimed.clear()
        loop = asyncio.ensure_future(work())
        await queue.claimed.wait()
        loop.cancel()
        await asyncio.wait([loop])
        assert loop.cancelled()
    loop = asyncio.ensure_future(work())
    pipeline.stop()
    await loop


async def test_events_are_refused_while_the_queue_is_too_old(queue: EmptyQueue) -> None:
    pipeline = make_pipeline(queue, has_workers=False)
    queue.due_at = NOW - AGE_LIMIT_S * 1000 - 1
    watch = asyncio.ensure_future(pipeline.watch_queue_age())
    await pipeline.intake.accept([make_event()])
    await queue.measured.wait()
    with pytest.raises(Overloaded):
        await pipeline.intake.accept([make_event()])
    watch.cancel()
    await asyncio.wait([watch])
    assert pipeline.metrics.accepted == 1


async def test_the_backlog_survives_an_error_of_the_store(queue: EmptyQueue) -> None:
    queue.error = StoreUnavailable()
    watch = asyncio.ensure_future(make_pipeline(queue).watch_queue_age())
    await queue.measured.wait()
    assert not watch.done()
    watch.cancel()
    await asyncio.wait([watch])


async def test_an_unexpected_error_ends_the_loop_for_its_supervisor(queue: EmptyQueue) -> None:
    queue.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await make_pipeline(queue).watch_queue_age()
