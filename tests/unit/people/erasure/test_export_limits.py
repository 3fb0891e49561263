"""Exports: one of a user at a time, a few of an app, and so many in an hour."""

from contextlib import AsyncExitStack

import pytest

from clarion.errors import TooManyRequests
from clarion.nodes.memory import MemoryLimits
from clarion.people.erasure.export_limits import ExportLimits
from tests.factories import NOW, FixedClock

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture
def limits(clock: FixedClock) -> ExportLimits:
    return ExportLimits(MemoryLimits(clock), clock)


async def test_one_of_a_user_runs_at_a_time(limits: ExportLimits) -> None:
    async with limits.take("app", "ana"):
        with pytest.raises(TooManyRequests) as refused:
            await limits.take("app", "ana").__aenter__()
        assert refused.value.retry_after_s == 5
        async with limits.take("app", "bob"), limits.take("other", "ana"):
            pass
    async with limits.take("app", "ana"):
        pass


async def test_three_of_an_app_run_at_a_time(limits: ExportLimits) -> None:
    async with AsyncExitStack() as stack:
        for number in range(3):
            await stack.enter_async_context(limits.take("app", f"user-{number}"))
        with pytest.raises(TooManyRequests):
            await stack.enter_async_context(limits.take("app", "another"))
        async with limits.take("other", "another"):
            pass


async def test_twelve_run_at_a_time_on_a_node(limits: ExportLimits) -> None:
    async with AsyncExitStack() as stack:
        for number in range(12):
            await stack.enter_async_context(limits.take(f"app-{number}", "ana"))
        with pytest.raises(TooManyRequests):
            await stack.enter_async_context(limits.take("app", "ana"))


async def test_a_user_has_thirty_in_an_hour_also_if_they_are_cut_off(
    limits: ExportLimits, clock: FixedClock
) -> None:
    for _ in range(30):
        with pytest.raises(ZeroDivisionError):
            async with limits.take("app", "ana"):
                raise ZeroDivisionError
    with pytest.raises(TooManyRequests) as refused:
        await limits.take("app", "ana").__aenter__()
    assert 0 < refused.value.retry_after_s <= 3_600
    async with limits.take("app", "bob"):
        pass
    clock.milliseconds += HOUR_MS
    async with limits.take("app", "ana"):
        pass


async def test_what_is_refused_for_a_running_one_is_not_counted(limits: ExportLimits) -> None:
    async with limits.take("app", "ana"):
        for _ in range(50):
            with pytest.raises(TooManyRequests):
                await limits.take("app", "ana").__aenter__()
    async with limits.take("app", "ana"):
        pass
