"""What waits for a retry keeps its time when the clock of the machine is set; see `clock_steps`."""

from itertools import pairwise

import pytest

from clarion.catalog.model import Channel
from clarion.clock import SteadyClock
from clarion.events.clock_steps import ClockSteps
from clarion.events.model import NEVER, DeadLetter, Job, JobKind, JobOutcome, Reschedule
from clarion.events.schedules import SPREAD, WAITS_S
from clarion.events.sql.jobs import SqlQueue
from clarion.history.model import DeliveryStatus
from clarion.store.engine import Engine
from clarion.store.statement import statement
from tests.contract.test_retry_schedule import CHANNELS, SELECT_DUE, World
from tests.factories import MINUTE, NOW, FixedClock, new_app_id
from tests.pipeline import LEASE, PipelineStore, drain, finish_sending, make_event, make_job

SELECT_TIMES = statement("select_times_of_jobs", "SELECT due_at FROM jobs WHERE app_id = :app_id")
HOUR = 60 * MINUTE
LATER = NOW + 5 * HOUR
STEPS = [HOUR, -HOUR]


class Machine:
    """A queue, and the clock of its machine."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.clock = engine, FixedClock(NOW)
        self.store = PipelineStore(engine, new_app_id())
        self.time = SteadyClock(self.clock)
        self.steps = ClockSteps(self.time, SqlQueue(engine))

    async def add(self, **changes: object) -> Job:
        event = make_event(self.store.app_id)
        job = make_job(event, **changes)
        await self.store.events.accept([event], [job])
        return job

    async def add_run(self, next_: Reschedule | DeadLetter, **changes: object) -> None:
        await self.add(**changes)
        (job,) = await self.store.claim(NOW)
        assert await self.store.write(JobOutcome(job=job, next=next_)) == [True]

    async def step(self, milliseconds: int) -> int:
        """Set the clock; return the due time of the only job afterwards."""
        self.clock.step(milliseconds)
        await self.steps.follow()
        assert self.time.now() == self.clock.now()
        ((due_at,),) = await self.engine.fetch(SELECT_TIMES, app_id=self.store.app_id)
        return int(due_at)


@pytest.fixture
def machine(engine: Engine) -> Machine:
    return Machine(engine)


@pytest.mark.parametrize("step", STEPS)
async def test_a_retry_waits_for_as_long_as_before(machine: Machine, step: int) -> None:
    await machine.add_run(Reschedule(due_at=NOW + 9, error="x"))
    assert await machine.step(step) == machine.clock.now() + 9


@pytest.mark.parametrize("step", STEPS)
async def test_a_claim_holds_for_as_long_as_before(machine: Machine, step: int) -> None:
    await machine.add()
    await machine.store.claim(NOW)
    assert await machine.step(step) == machine.clock.now() + LEASE


@pytest.mark.parametrize("step", STEPS)
async def test_what_is_due_stays_due(machine: Machine, step: int) -> None:
    await machine.add(due_at=NOW - 9)
    assert await machine.step(step) <= machine.clock.now() - 9


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("due_at", "kind"), [*((LATER, each) for each in JobKind), (NEVER, JobKind.HELD)]
)
async def test_what_waits_for_a_time_of_day_keeps_it(
    machine: Machine, step: int, due_at: int, kind: JobKind
) -> None:
    await machine.add(due_at=due_at, kind=kind)
    assert await machine.step(step) == due_at


async def test_what_could_not_be_tried_is_looked_at_no_later(machine: Machine) -> None:
    """Its provider failed, say: it is looked at again, and put off again if it still does."""
    await machine.add_run(Reschedule(due_at=NOW + 9), kind=JobKind.DELIVER)
    assert await machine.step(-HOUR) == machine.clock.now() + 9


@pytest.mark.parametrize("step", STEPS)
async def test_a_dead_letter_is_left_alone(machine: Machine, step: int) -> None:
    await machine.add_run(DeadLetter(error="x"))
    assert await machine.step(step) == NOW + LEASE


async def test_each_job_is_moved_once_in_several_chunks(machine: Machine, engine: Engine) -> None:
    for _ in range(5):
        await machine.add_run(Reschedule(due_at=NOW + 9, error="x"))
    queue, last, chunks = SqlQueue(engine), "", 0
    while (found := await queue.move_waiting(last, now=NOW, by_ms=7, limit=2)) is not None:
        last, chunks = found, chunks + 1
    rows = await engine.fetch(SELECT_TIMES, app_id=machine.store.app_id)
    assert ([due_at for (due_at,) in rows], chunks) == ([NOW + 16] * 5, 3)


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("steps", [(HOUR, -HOUR), (-HOUR, HOUR)])
async def test_attempts_come_at_their_times_while_the_clock_is_set(
    engine: Engine, channel: Channel, steps: tuple[int, ...]
) -> None:
    """Forth and back, before each attempt; the times are those of a clock that nobody sets."""
    world = World(engine, channel)
    world.time = time = SteadyClock(world.clock)
    follow = ClockSteps(time, SqlQueue(engine)).follow
    world.pipeline = world.restart()
    await world.begin()
    times: list[int] = []
    while True:
        await drain(world.pipeline)
        await finish_sending()
        if len(world.sender.times) > len(times):
            times.append(world.clock.monotonic())
        if not (rows := await engine.fetch(SELECT_DUE, app_id=world.app_id)):
            break
        wait = int(rows[0][0]) - world.clock.now()
        world.clock.advance(wait // 2)
        for step in steps:
            world.clock.step(step)
            await follow()
            assert await drain(world.pipeline) == 0
        world.clock.advance(wait - wait // 2)
    gaps_s = [(after - before) / 1000 for before, after in pairwise(times)]
    assert len(gaps_s) == len(WAITS_S[channel])
    for gap, wait_s in zip(gaps_s, WAITS_S[channel], strict=True):
        assert wait_s <= gap <= wait_s * (1 + SPREAD) + 0.01
    assert (await world.find()).status is DeliveryStatus.FAILED
