"""A background loop that fails is started again, and reported if it keeps failing."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from clarion.system.supervisor import FAILURES_LIMIT, Supervisor


class Loop:
    """Fails as often as it is told to, then runs until it is cancelled or stopped."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.runs = 0
        self.is_running = asyncio.Event()
        self.stop = asyncio.Event()
        self._failures = failures
        self._error = error

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self._failures:
            if self._error is not None:
                raise self._error
            return
        self.is_running.set()
        await self.stop.wait()


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(first_pause_s=0.001)
    yield supervisor
    await supervisor.stop(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the loop under test has no signal for it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("error", [ValueError("broken"), None])
async def test_a_loop_that_fails_or_ends_is_started_again(
    supervisor: Supervisor, error: Exception | None
) -> None:
    loop = Loop(2, error)
    supervisor.start("loop", loop.run)
    async with asyncio.timeout(60):
        await loop.is_running.wait()
    assert loop.runs == 3
    assert supervisor.count_restarts() == {"loop": 2}
    assert supervisor.find_failing() == []


async def test_a_loop_that_keeps_failing_in_one_way_is_logged_once_with_its_stack(
    supervisor: Supervisor,
) -> None:
    loop = Loop(3, ValueError("broken"))
    with capture_logs() as logs:
        supervisor.start("loop", loop.run)
        async with asyncio.timeout(60):
            await loop.is_running.wait()
    assert [each["log_level"] for each in logs] == ["error", "debug", "debug"]
    assert isinstance(logs[0]["exc_info"], ValueError)


async def test_a_loop_that_keeps_failing_is_reported_and_the_others_go_on(
    supervisor: Supervisor,
) -> None:
    failing, good = Loop(1_000, ValueError("broken")), Loop(0)
    supervisor.start("failing", failing.run)
    supervisor.start("good", good.run)
    await until(lambda: failing.runs > FAILURES_LIMIT)
    assert supervisor.find_failing() == ["failing"]
    assert good.is_running.is_set()
    assert good.runs == 1


async def test_stop_waits_for_a_loop_that_its_owner_ends() -> None:
    supervisor, loop = Supervisor(), Loop(0)
    supervisor.start("loop", loop.run, drains=True)
    await loop.is_running.wait()
    loop.stop.set()
    await supervisor.stop(5)
    assert loop.runs == 1
    assert supervisor.count_restarts() == {"loop": 0}


@pytest.mark.parametrize("drains", [True, False])
async def test_stop_cancels_what_does_not_end_in_time(*, drains: bool) -> None:
    supervisor, loop = Supervisor(), Loop(0)
    supervisor.start("loop", loop.run, drains=drains)
    await loop.is_running.wait()
    await supervisor.stop(0.01 if drains else 3600)
    assert not loop.stop.is_set()
    assert len(asyncio.all_tasks()) == 1


class SubscriptionLost:
    """Goes on as often as it is told to, whoever cancels it, but not for ever."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.is_running = asyncio.Event()

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + 15
        while clock() < ends_at:
            self.is_running.set()
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                if self.lost == 0:
                    raise
                self.lost -= 1


async def test_a_loop_that_has_missed_its_cancellation_is_cancelled_again() -> None:
    supervisor, loop = Supervisor(), SubscriptionLost(lost=1)
    supervisor.start("deaf", loop.run)
    await loop.is_running.wait()
    async with asyncio.timeout(60):
        await supervisor.stop(0)
    assert loop.lost == 0


async def test_a_loop_that_cannot_be_cancelled_is_named_and_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    supervisor, loop = Supervisor(), SubscriptionLost(lost=10)
    supervisor.start("deaf", loop.run)
    await loop.is_running.wait()
    async with asyncio.timeout(10):
        await supervisor.stop(0)
    assert "deaf" in capsys.readouterr().out
    loop.lost = 0
    await supervisor.stop(0)
