"""The time of a database: that of PostgreSQL is measured, SQLite has none of its own."""

from clarion.app.stores import open_clock
from clarion.clock import SystemClock
from clarion.store.engine import Engine
from clarion.store.postgres.clock import DatabaseClock

# PostgreSQL runs on this machine.
TOLERANCE_MS = 2_000


async def test_the_clock_of_a_store_shows_the_time_of_its_database(engine: Engine) -> None:
    clock, time = await open_clock(engine), await engine.read_time()
    assert isinstance(clock, SystemClock if time is None else DatabaseClock)
    assert abs(clock.now() - SystemClock().now()) < TOLERANCE_MS
    if time is not None:
        assert abs(clock.now() - time) < TOLERANCE_MS
