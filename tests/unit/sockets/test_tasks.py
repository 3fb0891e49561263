"""Background work: it runs to its end, fails quietly, and is cancelled after the grace."""

import asyncio

from clarion.errors import StoreUnavailable
from clarion.sockets.tasks import BackgroundTasks


async def test_work_is_finished_within_the_grace() -> None:
    tasks, done = BackgroundTasks(), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    tasks.start(work())
    await tasks.finish(5)
    assert done.is_set()


async def test_work_that_fails_with_an_error_of_ours_is_over() -> None:
    tasks = BackgroundTasks()

    async def work() -> None:
        raise StoreUnavailable

    tasks.start(work())
    await tasks.finish(5)
    assert not tasks._tasks


async def test_work_beyond_the_grace_is_cancelled() -> None:
    tasks, cancelled = BackgroundTasks(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    tasks.start(work())
    await tasks.finish(0.01)
    await asyncio.wait_for(cancelled.wait(), 60)
