"""What blocks the event loop is measured, counted and named."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from clarion.telemetry.loop_lag import LoopWatch
from tests.lanes import LANE, Lane
from tests.stalls import LIMIT_MS, LONG, find_stalls
from tests.stopwatch import UNIT_S, unit_s

pytestmark = pytest.mark.timing

LINES = list[EventDict]


class Lags:
    """Keeps what was observed."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def observe(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def lags() -> Lags:
    return Lags()


@pytest.fixture
def lines() -> Iterator[LINES]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
async def watch(lags: Lags) -> AsyncIterator[LoopWatch]:
    watch = LoopWatch(lags.observe)
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0.05)
    yield watch
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def work(seconds: float) -> None:
    """Use the processor, and nothing but it."""
    ends_at = time.thread_time() + seconds
    while time.thread_time() < ends_at:
        pass


async def test_a_stall_is_counted_and_logged_with_its_place(
    watch: LoopWatch, lags: Lags, lines: LINES
) -> None:
    work(0.3)
    await asyncio.sleep(0.05)
    assert watch.stalls >= 1
    assert max(lags.seconds) >= 0.25
    line = next(each for each in lines if each["lag_ms"] >= 250)
    assert line["event"] == "loop_stalled"
    assert line["cpu_ms"] >= 250
    assert "test_loop_lag.py" in line["place"]
    assert line["place"].split(" < ")[0].endswith(" work")


async def test_a_loop_that_waits_is_not_charged_with_processor_time(
    watch: LoopWatch, lines: LINES
) -> None:
    time.sleep(0.3)  # noqa: ASYNC251 - the loop is to be blocked
    await asyncio.sleep(0.05)
    assert watch.stalls >= 1
    line = next(each for each in lines if each["lag_ms"] >= 250)
    assert line["cpu_ms"] < 50


async def test_a_loop_that_waits_for_a_moment_is_counted_and_not_logged(
    watch: LoopWatch, lines: LINES
) -> None:
    time.sleep(0.1)  # noqa: ASYNC251 - the loop is to be blocked
    await asyncio.sleep(0.05)
    assert watch.stalls >= 1
    assert [each for each in lines if each["lag_ms"] < 250 and each["cpu_ms"] < 50] == []


async def test_many_stalls_make_one_line_a_second_and_each_is_counted(
    watch: LoopWatch, lines: LINES
) -> None:
    for _ in range(5):
        work(0.1)
        await asyncio.sleep(0.05)
    assert watch.stalls >= 5
    assert len(lines) <= 2


async def test_a_loop_that_runs_is_measured_all_the_time(watch: LoopWatch, lags: Lags) -> None:
    seen = len(lags.seconds)
    await asyncio.sleep(0.3)
    assert len(lags.seconds) > seen
    assert watch.stalls == sum(1 for each in lags.seconds if each >= 0.05)


def test_a_moment_of_the_machine_is_not_taken_for_a_stall_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(LANE, Lane.TIMING)
    unit_ms = LIMIT_MS * max(1.0, unit_s() / UNIT_S)
    short = {"event": "loop_stalled", "place": "short", "cpu_ms": 2 * unit_ms}
    long = {"event": "loop_stalled", "place": "long", "cpu_ms": 2 * LONG * unit_ms}
    assert find_stalls(json.dumps(short)) == []
    assert find_stalls(json.dumps(short)) == [short]
    assert find_stalls(json.dumps(long)) == [long]
