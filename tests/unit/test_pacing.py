"""Long work in turns: in order, to its end, and never for long at a time."""

import asyncio
import time

import pytest

from clarion.pacing import WORK_SLICE_S, Pace, WorkSlices

TURN_S = 0.01
STEP_S = 0.001
STEPS = 100


class Watch:
    """Other work on the loop: counts how often it runs, and how long it waits at most."""

    def __init__(self) -> None:
        self.turns = 0
        self.longest_s = 0.0

    async def run(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest_s, last = max(self.longest_s, now - last), now
            self.turns += 1


async def work(pace: Pace, done: list[int]) -> None:
    async for item in pace.over(range(STEPS)):
        time.sleep(STEP_S)  # noqa: ASYNC251 - the work
        done.append(item)


async def watch(*works: asyncio.Future[None]) -> Watch:
    watched = Watch()
    watching = asyncio.ensure_future(watched.run())
    await asyncio.gather(*works)
    watching.cancel()
    return watched


async def test_other_work_runs_after_each_turn() -> None:
    done: list[int] = []
    watched = await watch(asyncio.ensure_future(work(Pace(TURN_S), done)))
    assert done == list(range(STEPS))
    assert watched.turns >= STEPS * STEP_S / TURN_S / 2


async def test_many_at_once_take_turns_with_each_other() -> None:
    """Ten of them stall the loop no longer than one: if each had a turn, it were ten turns."""
    pace = Pace(TURN_S)
    done: list[list[int]] = [[] for _ in range(10)]
    watched = await watch(*(asyncio.ensure_future(work(pace, each)) for each in done))
    assert done == [list(range(STEPS))] * 10
    assert watched.turns >= 10 * STEPS * STEP_S / TURN_S / 2


async def test_of_nothing_nothing_comes() -> None:
    nothing: list[int] = []
    assert [item async for item in Pace().over(nothing)] == []


async def test_work_that_is_cancelled_leaves_the_turn_to_others() -> None:
    pace = Pace(0.0)
    done: list[int] = []
    first = asyncio.ensure_future(work(pace, []))
    await asyncio.sleep(0)
    first.cancel()
    await work(pace, done)
    assert done == list(range(STEPS))


async def work_in_slices(steps: int) -> None:
    slices = WorkSlices()
    for _ in range(steps):
        spin(STEP_S / 2)
        await slices.pause()


def spin(seconds: float) -> None:
    """Use the processor for so long."""
    ends_at = time.thread_time() + seconds
    while time.thread_time() < ends_at:
        pass


@pytest.mark.timing
async def test_the_tasks_of_background_work_share_its_part_of_the_loop() -> None:
    """Each does a step or two in a turn: eight with a slice of their own would do dozens."""
    watched = await watch(*(asyncio.ensure_future(work_in_slices(50)) for _ in range(8)))
    assert watched.turns >= 50 / 2


@pytest.mark.timing
async def test_work_has_as_much_of_the_loop_as_all_else() -> None:
    """Requests that take long must not leave it next to nothing."""
    steps = int(40 * WORK_SLICE_S / STEP_S)
    working = asyncio.ensure_future(work_in_slices(2 * steps))
    turns = 0
    while not working.done():
        spin(WORK_SLICE_S)
        await asyncio.sleep(0)
        turns += 1
    assert turns <= 80
