"""Apps take turns, and one that waits in vain leaves no trace."""

import asyncio

import pytest

from clarion.catalog.sandbox.slots import WAITING_LIMIT, AppSlots
from clarion.errors import TooManyRequests


async def test_an_app_with_much_to_do_does_not_delay_another() -> None:
    turns, order = AppSlots(1), []

    async def work(app_id: str) -> None:
        await turns.take(app_id)
        order.append(app_id)
        await asyncio.sleep(0)
        turns.leave(app_id)

    noisy = [asyncio.create_task(work("noisy")) for _ in range(20)]
    await asyncio.sleep(0)
    quiet = [asyncio.create_task(work(app)) for app in ("a", "b", "a")]
    await asyncio.gather(*noisy, *quiet)
    assert {"a", "b"} <= set(order[:5])
    assert order[:10].count("a") == 2
    assert len(turns) == 0


async def test_an_app_has_one_place_at_a_time() -> None:
    turns = AppSlots(2)
    await turns.take("noisy")
    second = asyncio.create_task(turns.take("noisy"))
    await asyncio.sleep(0)
    await asyncio.wait_for(turns.take("quiet"), 60)
    assert not second.done()
    turns.leave("noisy")
    await second


async def test_too_much_waiting_is_refused() -> None:
    turns = AppSlots(1)
    await turns.take("noisy")
    waiting = [asyncio.create_task(turns.take("noisy")) for _ in range(WAITING_LIMIT)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await turns.take("noisy")
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    turns.leave("noisy")
    await asyncio.wait_for(turns.take("noisy"), 60)


async def test_a_place_given_to_one_that_just_left_goes_to_the_next() -> None:
    turns = AppSlots(1)
    await turns.take("a")
    gone, following = asyncio.create_task(turns.take("b")), asyncio.create_task(turns.take("c"))
    await asyncio.sleep(0)
    turns.leave("a")
    gone.cancel()
    await asyncio.wait_for(following, 60)
