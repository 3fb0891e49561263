"""When the clock of a machine is set: what is moved before that, what after it, and how often."""

from typing import cast

import pytest

from clarion.clock import SteadyClock
from clarion.errors import StorageFull
from clarion.events.clock_steps import STEP_MS, ClockSteps
from clarion.events.port import Queue
from tests.factories import MINUTE, NOW, FixedClock

HOUR = 60 * MINUTE
CHUNKS = ["a", "b", "c"]


class Moving:
    """The part of the `Queue` port that moves jobs; it keeps what was moved at what time."""

    def __init__(self, time: SteadyClock) -> None:
        self._time = time
        self.moved: list[tuple[str, str, int, int]] = []
        self.fails_at = ""

    async def move_due(self, after: str, *, now: int, by_ms: int, limit: int) -> str | None:
        return self._move("due", after, now, by_ms, limit)

    async def move_waiting(self, after: str, *, now: int, by_ms: int, limit: int) -> str | None:
        return self._move("waiting", after, now, by_ms, limit)

    def _move(self, what: str, after: str, now: int, by_ms: int, limit: int) -> str | None:
        assert limit > 0
        assert now == NOW
        left = [each for each in CHUNKS if each > after]
        if not left:
            return None
        if left[0] == self.fails_at:
            self.fails_at = ""
            raise StorageFull
        self.moved.append((what, left[0], by_ms, self._time.now() - NOW))
        return left[0]


class Machine:
    def __init__(self) -> None:
        self.clock = FixedClock()
        self.time = SteadyClock(self.clock)
        self.queue = Moving(self.time)
        self.steps = ClockSteps(self.time, cast("Queue", self.queue))


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def test_what_waits_is_moved_ahead_before_the_time(machine: Machine) -> None:
    machine.clock.step(HOUR)
    assert machine.time.now() == NOW
    await machine.steps.follow()
    assert machine.queue.moved == [("waiting", each, HOUR, 0) for each in CHUNKS]
    assert machine.time.now() == NOW + HOUR


async def test_what_waits_is_moved_back_after_the_time_and_what_is_due_before(
    machine: Machine,
) -> None:
    machine.clock.step(-HOUR)
    await machine.steps.follow()
    due = [("due", each, -HOUR, 0) for each in CHUNKS]
    assert machine.queue.moved == [*due, *(("waiting", each, -HOUR, -HOUR) for each in CHUNKS)]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_what_the_store_refuses_is_moved_later_and_nothing_twice(
    machine: Machine, step: int
) -> None:
    machine.clock.step(step)
    machine.queue.fails_at = "b"
    with pytest.raises(StorageFull):
        await machine.steps.follow()
    machine.clock.step(7 * HOUR)  # another step is for the next round
    await machine.steps.follow()
    assert machine.time.now() == NOW + step
    moved = [(what, chunk) for what, chunk, _, _ in machine.queue.moved]
    assert len(moved) == len(set(moved)) == 3 * (1 if step > 0 else 2)
    assert {by for *_, by, _ in machine.queue.moved} == {step}


@pytest.mark.parametrize("drift", [STEP_MS - 1, -STEP_MS + 1])
async def test_a_clock_that_drifts_is_followed_and_nothing_is_moved(
    machine: Machine, drift: int
) -> None:
    machine.clock.step(drift)
    await machine.steps.follow()
    assert (machine.time.now(), machine.queue.moved) == (NOW + drift, [])
