"""Turns of apps: whose work is next, and who is woken for it."""

import asyncio

from clarion.events.turns import Turns


async def test_new_work_wakes_a_worker() -> None:
    turns = Turns(per_app=1)
    waiting = asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0)
    assert turns.is_free("b")
    turns.add("a")
    assert not turns.is_free("b")
    await waiting


async def test_a_worker_that_waits_no_more_is_not_woken_in_place_of_another() -> None:
    turns = Turns(per_app=1)
    gone, there = (asyncio.ensure_future(turns.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    turns.add("a")
    await there
    assert gone.cancelled()


def test_work_that_comes_during_the_turn_of_an_app_gets_another_turn() -> None:
    turns = Turns(per_app=1)
    turns.add("a")
    assert turns.take() == "a"
    turns.add("a")
    assert turns.take() is None
    turns.end("a")
    assert turns.take() == "a"
