"""The clock that goes by the database: measured, monotonic, and not by the clock of the machine."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from clarion.store.postgres.clock import SKEW_LIMIT_MS, STEP_LIMIT_MS, DatabaseClock
from tests.factories import NOW, FixedClock

HOUR = 3_600_000


@dataclass
class Database:
    """A database whose clock differs from that of the machine, behind a network."""

    machine: FixedClock
    ahead_ms: int = 0
    # How long the request and the response take, over and over.
    trips: tuple[tuple[int, int], ...] = ((0, 0),)

    def __post_init__(self) -> None:
        self._trips = self._repeat()

    def _repeat(self) -> Iterator[tuple[int, int]]:
        while True:
            yield from self.trips

    async def read_time(self) -> int:
        there, back = next(self._trips)
        self.machine.advance(there)
        time = self.machine.monotonic() + self.ahead_ms
        self.machine.advance(back)
        return time


async def measured(database: Database) -> DatabaseClock:
    clock = DatabaseClock(database.read_time, database.machine)
    await clock.measure()
    return clock


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_machine_whose_clock_is_set_goes_on_as_before(step: int) -> None:
    machine = FixedClock()
    clock = await measured(Database(machine))
    machine.step(step)
    machine.advance(5)
    assert clock.now() == NOW + 5
    await clock.measure()
    assert clock.now() == NOW + 5
    assert clock.skew_ms == step


@pytest.mark.parametrize("ahead", [300_000, -300_000])
async def test_the_time_is_that_of_the_database(ahead: int) -> None:
    machine = FixedClock()
    clock = await measured(Database(machine, ahead))
    assert abs(clock.now() - (NOW + ahead)) <= 1
    assert abs(clock.skew_ms + ahead) <= 1
    assert abs(clock.skew_ms) > SKEW_LIMIT_MS


async def test_the_quickest_answer_counts_and_bounds_the_error() -> None:
    """A slow one may have read the clock at its beginning or at its end."""
    machine = FixedClock()
    clock = await measured(Database(machine, trips=((0, 400), (2, 4), (400, 0))))
    assert clock.uncertainty_ms == 4
    assert abs(clock.now() - machine.monotonic()) <= 4


async def test_a_less_exact_answer_moves_nothing() -> None:
    machine = FixedClock()
    database = Database(machine)
    clock = await measured(database)
    database.trips = ((0, 400),)
    await clock.measure()
    assert clock.now() == machine.monotonic()


async def test_a_database_that_is_set_back_makes_the_time_stand_still() -> None:
    machine = FixedClock()
    database = Database(machine)
    clock = await measured(database)
    before = clock.now()
    database.ahead_ms = -30_000
    await clock.measure()
    assert clock.now() == before
    machine.advance(30_001)
    assert clock.now() == before + 1


async def test_a_database_that_was_far_ahead_counts_at_once() -> None:
    machine = FixedClock()
    database = Database(machine, ahead_ms=STEP_LIMIT_MS * 2)
    clock = await measured(database)
    assert clock.now() > NOW + STEP_LIMIT_MS
    database.ahead_ms = 0
    await clock.measure()
    assert abs(clock.now() - NOW) <= 1


async def test_ids_have_the_time_of_the_database_and_later_ones_sort_later() -> None:
    machine = FixedClock()
    clock = await measured(Database(machine, ahead_ms=HOUR))
    ids = [clock.new_id() for _ in range(1_000)]
    machine.advance(1)
    ids += [clock.new_id() for _ in range(1_000)]
    assert ids == sorted(set(ids))
    parsed = [uuid.UUID(each) for each in ids]
    assert {(each.version, each.variant) for each in parsed} == {(7, uuid.RFC_4122)}
    assert abs((parsed[0].int >> 80) - (NOW + HOUR)) <= 1
