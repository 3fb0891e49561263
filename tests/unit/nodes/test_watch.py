"""When loops look for what other nodes have changed."""

import asyncio
from itertools import count

from clarion.nodes.watch import Watch
from tests.recorded_bus import RecordedBus, RecordedHub


class Loop:
    """Counts how often it was due."""

    def __init__(
        self, bus: RecordedBus, *, disconnected_s: float, connected_s: float | None
    ) -> None:
        self.watch = Watch(bus, disconnected_s=disconnected_s, connected_s=connected_s)
        self.due = 0
        self.came = asyncio.Event()

    async def run(self) -> None:
        for number in count(1):
            await self.watch.until_due()
            self.due = number
            self.came.set()


async def turn() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_loop_is_often_due_while_the_bus_is_disconnected() -> None:
    bus = RecordedHub().join()
    loop = Loop(bus, disconnected_s=0, connected_s=3600)
    task = asyncio.create_task(loop.run())
    await turn()
    assert loop.due == 0
    bus.is_connected = False
    await turn()
    assert loop.due > 1
    task.cancel()


async def test_a_loop_is_due_now_and_then_while_the_bus_is_connected() -> None:
    loop = Loop(RecordedHub().join(), disconnected_s=0.001, connected_s=0.005)
    task = asyncio.create_task(loop.run())
    await asyncio.wait_for(loop.came.wait(), 30)
    task.cancel()


async def test_a_loop_is_due_once_after_a_gap() -> None:
    bus = RecordedHub().join()
    loop = Loop(bus, disconnected_s=0, connected_s=None)
    task = asyncio.create_task(loop.run())
    await turn()
    assert loop.due == 0
    bus.reconnect()
    await turn()
    assert loop.due == 1
    task.cancel()
