"""Connected devices in a process of their own, which acknowledge what they receive."""

import asyncio
import multiprocessing
import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from time import perf_counter

import uvloop

from bench.installation import secret_of, token_of
from bench.light_device import Inbox, LightDevice, connect

CONNECTING_AT_A_TIME = 100
CONNECT_WITHIN_S = 300.0
LOOK_EVERY_S = 0.005
# One address of the machine has about 28,000 ports; it takes long to find one of the last.
PER_SOURCE = 5_000


@dataclass(frozen=True, kw_only=True)
class Received:
    """What the devices have received since the last call; times are those of `perf_counter`."""

    first_at: float
    last_at: float
    lost: int  # connections that the server has ended
    latencies: "array[float]"

    @property
    def count(self) -> int:
        return len(self.latencies)

    @property
    def throughput(self) -> float:
        """How many were received in a second."""
        return self.count / max(self.last_at - self.first_at, 1e-9)

    def percentile(self, percent: int) -> float:
        """Return the latency that `percent` of the messages did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


class DeviceProcess:
    """Controls the devices in the other process."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        connecting = self._receive(CONNECT_WITHIN_S)
        self.began_at = connecting.first_at
        self.connected_at = connecting.last_at

    def wait_for(self, count: int, within_s: float = 30.0) -> Received:
        """Return what came since the last call, as soon as it is `count` messages."""
        self._pipe.send(count)
        return self._receive(within_s)

    def _receive(self, within_s: float) -> Received:
        if not self._pipe.poll(within_s):
            raise TimeoutError(f"the devices did not answer within {within_s:g} s")
        received: Received = self._pipe.recv()
        return received


@contextmanager
def connected_devices(port: int, numbers: range, *, ack_every: int = 1) -> Iterator[DeviceProcess]:
    """Have these devices connected for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_run, args=(theirs, port, numbers, ack_every), daemon=True)
    child.start()
    theirs.close()
    try:
        yield DeviceProcess(ours)
    finally:
        child.kill()
        child.join()
        ours.close()


def _run(pipe: Pipe, port: int, numbers: range, ack_every: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Devices(pipe, port, ack_every).serve(numbers))


class _Devices:
    """All the devices, with one inbox."""

    def __init__(self, pipe: Pipe, port: int, ack_every: int) -> None:
        self._pipe = pipe
        self._port = port
        self._connecting = asyncio.Semaphore(CONNECTING_AT_A_TIME)
        self._inbox = Inbox(ack_every)
        self._devices: list[LightDevice] = []

    async def serve(self, numbers: range) -> None:
        began_at = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(self._connect(number))
        # What came meanwhile is for the first call.
        self._send(first_at=began_at, last_at=perf_counter(), latencies=array("d"))
        reader = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), reader.set)
        # uvloop has made it non-blocking, and the pipe is small.
        os.set_blocking(self._pipe.fileno(), True)
        while True:
            await reader.wait()
            reader.clear()
            try:
                await self._answer(self._pipe.recv())
            except EOFError:
                return

    async def _connect(self, number: int) -> None:
        source = f"127.0.0.{1 + number // PER_SOURCE}"
        async with self._connecting:
            device = await connect(
                self._port, token_of(number), secret_of(number), self._inbox, source=source
            )
            self._devices.append(device)

    async def _answer(self, wanted: int) -> None:
        while len(self._inbox.latencies) < wanted:  # noqa: ASYNC110 - an event a message costs more
            await asyncio.sleep(LOOK_EVERY_S)
        for device in self._devices:
            device.acknowledge_rest()
        latencies, self._inbox.latencies = self._inbox.latencies, array("d")
        self._send(first_at=self._inbox.first_at, last_at=self._inbox.last_at, latencies=latencies)

    def _send(self, *, first_at: float, last_at: float, latencies: "array[float]") -> None:
        lost = self._inbox.lost
        self._pipe.send(
            Received(first_at=first_at, last_at=last_at, lost=lost, latencies=latencies)
        )
