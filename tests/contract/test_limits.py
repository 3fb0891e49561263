"""The `Limits` port."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.nodes.port import Allowance, Limits, Quota, Taken
from tests.factories import MINUTE, NOW, new_app_id


async def take(
    limits: Limits, key: str, *, limit: int = 3, window_s: int = 60, now: int = NOW
) -> Allowance:
    return await limits.take(key, limit=limit, window_s=window_s, now=now)


async def test_each_use_leaves_one_less(limits: Limits) -> None:
    left = [(await take(limits, "a")).remaining for _ in range(3)]
    assert left == [2, 1, 0]


async def test_the_use_behind_the_limit_is_the_first_that_is_exceeded(limits: Limits) -> None:
    exceeded = [(await take(limits, "a")).is_exceeded for _ in range(5)]
    assert exceeded == [False, False, False, True, True]


async def test_a_limit_of_one_lets_one_pass(limits: Limits) -> None:
    exceeded = [(await take(limits, "a", limit=1)).is_exceeded for _ in range(2)]
    assert exceeded == [False, True]


async def test_what_is_left_is_never_below_zero(limits: Limits) -> None:
    allowances = [await take(limits, "a") for _ in range(6)]
    assert allowances[-1].remaining == 0
    assert allowances[-1].limit == 3


async def test_keys_are_counted_apart(limits: Limits) -> None:
    for _ in range(4):
        await take(limits, "a")
    assert (await take(limits, "b")).remaining == 2


async def test_windows_of_another_length_are_counted_apart(limits: Limits) -> None:
    await take(limits, "a", window_s=60)
    assert (await take(limits, "a", window_s=3600)).remaining == 2
    assert (await take(limits, "a", window_s=60)).remaining == 1


async def test_windows_are_aligned_to_multiples_of_their_length(limits: Limits) -> None:
    assert (await take(limits, "a", now=NOW + MINUTE - 1)).remaining == 2
    assert (await take(limits, "a", now=NOW + MINUTE)).remaining == 2
    assert (await take(limits, "a", now=NOW + 2 * MINUTE - 1)).remaining == 1


async def test_the_reset_is_the_rest_of_the_window_in_whole_seconds(limits: Limits) -> None:
    moments = {0: 60, 1: 60, 999: 60, 1_000: 59, MINUTE - 1: 1}
    for moment, reset_s in moments.items():
        assert (await take(limits, "a", now=NOW + moment)).reset_s == reset_s


async def test_uses_beyond_the_limit_do_not_move_the_reset(limits: Limits) -> None:
    for _ in range(10):
        last = await take(limits, "a", now=NOW + MINUTE // 2)
    assert last.reset_s == 30
    assert (await take(limits, "a", now=NOW + MINUTE)).remaining == 2


async def test_uses_at_once_are_all_counted(limits: Limits) -> None:
    taken = await asyncio.gather(*(take(limits, "a", limit=40) for _ in range(50)))
    assert sorted(each.remaining for each in taken) == [0] * 10 + list(range(40))
    assert sum(each.is_exceeded for each in taken) == 10


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1, 5),
    window_s=st.integers(1, 100_000),
    steps=st.lists(st.integers(0, 90_000), max_size=12),
)
async def test_the_counts_are_those_of_a_plain_count(
    limits: Limits, limit: int, window_s: int, steps: list[int]
) -> None:
    key, now, window, used = new_app_id(), NOW, -1, 0
    for step in steps:
        now += step
        used = used + 1 if now // (window_s * 1000) == window else 1
        window = now // (window_s * 1000)
        taken = await take(limits, key, limit=limit, window_s=window_s, now=now)
        assert (taken.remaining, taken.is_exceeded) == (max(0, limit - used), used > limit)


async def take_both(limits: Limits, own: int, shared: int, now: int = NOW) -> Taken:
    quotas = (Quota("own", own), Quota("shared", shared))
    return await limits.take_all(quotas, window_s=60, now=now)


async def test_of_several_limits_the_one_with_the_least_left_is_returned(limits: Limits) -> None:
    assert await take_both(limits, 5, 9) == (0, left(5, 4))
    assert await take_both(limits, 5, 4) == (1, left(4, 2))
    assert await take_both(limits, 4, 4) == (0, left(4, 1))
    assert (await take(limits, "own", limit=9)).remaining == 5
    assert (await take(limits, "shared", limit=9)).remaining == 5


def left(limit: int, remaining: int) -> Allowance:
    return Allowance(limit=limit, remaining=remaining, reset_s=60, is_exceeded=False)


async def test_whoever_is_beyond_a_limit_uses_up_none_of_the_next(limits: Limits) -> None:
    taken = [await take_both(limits, 2, 9) for _ in range(10)]
    assert [each.allowance.is_exceeded for each in taken] == [False] * 2 + [True] * 8
    assert {each.position for each in taken} == {0}
    assert (await take(limits, "shared", limit=9)).remaining == 6


async def test_the_last_limit_may_be_the_exceeded_one(limits: Limits) -> None:
    taken = [await take_both(limits, own, 1) for own in (5, 2)]
    assert [each.allowance.is_exceeded for each in taken] == [False, True]
    assert [each.position for each in taken] == [1, 1]


async def test_counts_of_a_window_expire(limits: Limits) -> None:
    await take_both(limits, 1, 1)
    assert not (await take_both(limits, 1, 1, NOW + MINUTE)).allowance.is_exceeded
