"""The loops of the pipeline: one for each worker and one for the backlog, each restartable."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import Any

import pytest

from clarion.catalog.model import Priority
from clarion.errors import StoreUnavailable, TooManyRequests
from clarion.events.model import DueJobs, Event, Job, JobCount
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from tests.factories import NOW, FixedClock
from tests.pipeline import find_no_caps, make_event

AGE_LIMIT_S = 60
JOBS_LIMIT = 1_000


class EmptyQueue:
    """The part of the `Queue` port that an idle pipeline uses; it sets events when it is called."""

    def __init__(self) -> None:
        self.claimed = asyncio.Event()
        self.measured = asyncio.Event()
        self.due: tuple[DueJobs, ...] = ()
        self.counts: dict[str, int] = {}
        self.held = 0
        self.error: Exception | None = None

    async def claim(
        self, pool: str, app_id: str, quotas: Mapping[Priority, int], *, now: int, until: int
    ) -> tuple[Job, ...]:
        assert (pool, app_id, sum(quotas.values()), until > now) == ("", "noisy", 256, True)
        self.claimed.set()
        return ()

    async def find_oldest(self, *, after: DueJobs, limit: int) -> tuple[DueJobs, ...]:
        assert (after.app_id, limit) == ("", 500)
        self.measured.set()
        if self.error is not None:
            raise self.error
        return self.due

    async def count(self, now: int) -> dict[tuple[str, int], JobCount]:
        assert now == NOW
        found = {(app, 0): JobCount(count, self.held) for app, count in self.counts.items()}
        return found | {("dead", -1): JobCount(7, 0)}

    async def count_stuck(self) -> int:
        return 3


class NoEvents:
    """The `Events` port that accepts everything."""

    async def accept(self, events: Sequence[Event], jobs: Sequence[Job], once: object) -> None:
        assert (len(events), once) == (len(jobs), None)


@pytest.fixture
def queue() -> EmptyQueue:
    return EmptyQueue()


def make_pipeline(
    queue: EmptyQueue,
    *,
    has_workers: bool = True,
    clock: FixedClock | None = None,
    deleted_apps: Container[str] = (),
) -> Pipeline:
    unused: Any = None
    ports = PipelinePorts(
        events=NoEvents(),  # type: ignore[arg-type]
        queue=queue,  # type: ignore[arg-type]
        notifications=unused,
        claims=unused,
        outcomes=unused,
        deliveries=unused,
        users=unused,
        segments=unused,
        devices=unused,
        broadcasts=unused,
        catalog=unused,
        clock=clock or FixedClock(),
        channels=unused,
        gateway=unused,
        registry=unused,
        push_devices=unused,
    )
    return Pipeline(
        ports,
        on_inbox_changed=lambda *_: None,
        queue_age_limit_s=AGE_LIMIT_S,
        app_waiting=JOBS_LIMIT,
        has_workers=has_workers,
        find_caps=find_no_caps,
        deleted_apps=deleted_apps,
    )


async def test_there_is_a_loop_for_each_worker(queue: EmptyQueue) -> None:
    loops = make_pipeline(queue).worker_loops()
    assert set(loops) == {f"worker_{n}" for n in range(1, 31)}
    assert set(make_pipeline(queue, has_workers=False).worker_loops()) == set()


async def test_a_worker_ends_after_stop_and_can_be_run_again_before(queue: EmptyQueue) -> None:
    pipeline = make_pipeline(queue)
    work = pipeline.worker_loops()["worker_1"]
    for _ in range(2):
        queue.claimed.clear()
        pipeline.wake("noisy")
        loop = asyncio.ensure_future(work())
        await queue.claimed.wait()
        loop.cancel()
        await asyncio.wait([loop])
        assert loop.cancelled()
    loop = asyncio.ensure_future(work())
    pipeline.stop()
    await loop


async def test_no_job_of_a_deleted_app_is_claimed(queue: EmptyQueue) -> None:
    deleted = set[str]()
    pipeline = make_pipeline(queue, deleted_apps=deleted)
    (worker, *_) = pipeline.workers
    deleted.add("noisy")
    pipeline.wake("noisy")
    assert await worker.work() == 0
    assert not queue.claimed.is_set()
    assert await worker.work() is None, "it has no turn left"
    deleted.clear()
    pipeline.wake("noisy")
    await worker.work()
    assert queue.claimed.is_set()


def due(app_id: str, age_ms: int) -> DueJobs:
    return DueJobs("", Priority.LOW, app_id, NOW - age_ms)


async def test_events_of_an_app_are_refused_while_its_queue_is_too_old(queue: EmptyQueue) -> None:
    """And only of this app: another one's queue is not old."""
    clock = FixedClock()
    pipeline = make_pipeline(queue, has_workers=False, clock=clock)
    queue.due = (due("noisy", 0), due("quiet", 0))
    await pipeline.backlog.measure()
    clock.advance(AGE_LIMIT_S * 1000 + 5_000)
    queue.due = (due("noisy", 0), due("quiet", -AGE_LIMIT_S * 1000))
    await pipeline.backlog.measure()
    await pipeline.intake.accept([make_event("quiet")])
    with pytest.raises(TooManyRequests, match="your app has waited for 65 s") as refused:
        await pipeline.intake.accept([make_event("noisy")])
    assert refused.value.retry_after_s == 5
    assert pipeline.metrics.accepted == 1
    assert pipeline.backlog.ages_s() == {"low": 65.0, "medium": 0, "high": 0, "critical": 0}


async def test_events_of_an_app_are_refused_while_too_many_of_its_jobs_wait(
    queue: EmptyQueue,
) -> None:
    pipeline = make_pipeline(queue, has_workers=False)
    queue.counts = {"noisy": JOBS_LIMIT - 1}
    watch = asyncio.ensure_future(pipeline.backlog.watch())
    await queue.measured.wait()
    await asyncio.sleep(0)
    await pipeline.intake.accept([make_event("noisy")])
    with pytest.raises(TooManyRequests, match="has 1,000 jobs, and at most 1,000 may wait"):
        await pipeline.intake.accept([make_event("noisy")])
    await pipeline.intake.accept([make_event("quiet")])
    watch.cancel()
    await asyncio.wait([watch])


async def test_jobs_that_are_due_are_counted_apart_from_those_that_are_held(
    queue: EmptyQueue,
) -> None:
    backlog = make_pipeline(queue, has_workers=False).backlog
    queue.counts, queue.held = {"noisy": 1_050, "quiet": 1_046}, 1_046
    queue.due = (due("noisy", 5), due("quiet", -5))
    watch = asyncio.ensure_future(backlog.watch())
    await queue.measured.wait()
    await asyncio.sleep(0)
    assert (backlog.count_due("noisy"), backlog.count_held("noisy")) == (4, 1_046)
    assert (backlog.count_due("quiet"), backlog.count_held("quiet")) == (0, 1_046)
    watch.cancel()
    await asyncio.wait([watch])


async def test_no_queue_is_too_old_because_the_clock_was_set_forward(queue: EmptyQueue) -> None:
    clock = FixedClock()
    pipeline = make_pipeline(queue, has_workers=False, clock=clock)
    queue.due = (due("app", 0),)
    clock.step(AGE_LIMIT_S * 1000 + 1_000)
    await pipeline.backlog.measure()
    await pipeline.backlog.measure()
    await pipeline.intake.accept([make_event("app")])


async def test_the_backlog_survives_an_error_of_the_store(queue: EmptyQueue) -> None:
    queue.error = StoreUnavailable()
    watch = asyncio.ensure_future(make_pipeline(queue).backlog.watch())
    await queue.measured.wait()
    assert not watch.done()
    watch.cancel()
    await asyncio.wait([watch])


async def test_an_unexpected_error_ends_the_loop_for_its_supervisor(queue: EmptyQueue) -> None:
    queue.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await make_pipeline(queue).backlog.watch()
