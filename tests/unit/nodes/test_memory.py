"""Limits in memory: what they leave, and that they do not grow without end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.nodes.memory import KEYS_LIMIT, MemoryLimits, allowance
from tests.factories import MINUTE, NOW, FixedClock


@given(
    count=st.integers(1, 1_000),
    limit=st.integers(1, 1_000),
    window_s=st.integers(1, 100_000),
    now=st.integers(0, 2**42),
)
def test_what_is_left_is_never_below_zero_and_the_reset_is_within_the_window(
    count: int, limit: int, window_s: int, now: int
) -> None:
    left = allowance(count, limit=limit, window_s=window_s, now=now)
    assert left.is_exceeded == (count > limit)
    assert left.remaining == max(0, limit - count)
    assert 1 <= left.reset_s <= window_s


async def test_a_window_that_is_over_is_forgotten() -> None:
    limits = MemoryLimits(FixedClock())
    for number in range(100):
        await limits.take(f"key {number}", limit=1, window_s=60, now=NOW)
    await limits.take("key", limit=1, window_s=60, now=NOW + MINUTE)
    ((_, counts),) = limits._windows.values()
    assert counts == {"key": 1}


async def test_too_many_keys_in_one_window_start_it_afresh() -> None:
    limits = MemoryLimits(FixedClock())
    counts = limits._counts_of(60, NOW // MINUTE)
    counts.update((str(number), 9) for number in range(KEYS_LIMIT))
    assert (await limits.take("7", limit=5, window_s=60, now=NOW)).is_exceeded is False
    assert len(limits._counts_of(60, NOW // MINUTE)) == 1


@pytest.mark.parametrize("now", [0, 1, 59_999])
async def test_the_first_window_of_all_is_a_window(now: int) -> None:
    assert (
        await MemoryLimits(FixedClock()).take("a", limit=1, window_s=60, now=now)
    ).remaining == 0


@pytest.mark.parametrize("step", [60 * MINUTE, -60 * MINUTE, 7, -7])
async def test_a_window_goes_on_and_ends_when_the_clock_is_set(step: int) -> None:
    clock = FixedClock()
    limits = MemoryLimits(clock)

    async def take() -> tuple[int, int]:
        left = await limits.take("a", limit=5, window_s=60, now=clock.now())
        return left.remaining, left.reset_s

    assert await take() == (4, 60)
    clock.step(step)
    assert await take() == (3, 60)
    assert limits.find_reset_s(window_s=60, now=clock.now()) == 60
    clock.advance(MINUTE - 1)
    assert await take() == (2, 1)
    clock.advance(1)
    assert await take() == (4, 60)
