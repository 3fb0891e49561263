"""Changes of one row wait for each other, but not without limit."""

import asyncio

import pytest

from clarion.errors import Overloaded
from clarion.store.row_turns import WAITING_LIMIT, RowTurns


async def test_changes_of_a_row_do_not_overlap_and_keep_their_order() -> None:
    turns, order = RowTurns(), []

    async def change(number: int) -> None:
        async with turns.take("app", "row"):
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(change(number) for number in range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(turns) == 0


async def test_other_rows_do_not_wait() -> None:
    turns = RowTurns()
    async with turns.take("app", "row"), turns.take("other", "row"), turns.take("app", "another"):
        assert len(turns) == 3
    assert len(turns) == 0


async def test_beyond_the_limit_a_change_is_refused_and_one_that_is_cancelled_leaves_room() -> None:
    turns, is_over = RowTurns(), asyncio.Event()

    async def change() -> None:
        async with turns.take("app", "row"):
            await is_over.wait()

    changes = [asyncio.create_task(change()) for _ in range(WAITING_LIMIT + 1)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await change()
    changes[-1].cancel()
    await asyncio.sleep(0)
    changes.append(asyncio.create_task(change()))
    is_over.set()
    await asyncio.gather(*changes[:-2], changes[-1])
    assert len(turns) == 0
