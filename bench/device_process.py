"""Connected devices in a process of their own, which acknowledge every message."""

import asyncio
import multiprocessing
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from time import perf_counter

import msgspec
import uvloop

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import secret_of, token_of

CONNECTING_AT_A_TIME = 100
CONNECT_WITHIN_S = 60.0


class Stamp(msgspec.Struct):
    """The part of a payload that says when it was due to be sent, by `perf_counter`."""

    at: float = 0.0


_decode = msgspec.json.Decoder(Stamp).decode


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
def connected_devices(port: int, numbers: range) -> Iterator[DeviceProcess]:
    """Have these devices connected for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_run, args=(theirs, port, numbers), daemon=True)
    child.start()
    theirs.close()
    try:
        yield DeviceProcess(ours)
    finally:
        child.kill()
        child.join()
        ours.close()


def _run(pipe: Pipe, port: int, numbers: range) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Devices(pipe, port).serve(numbers))


class _Devices:
    """All the devices, with one listener."""

    def __init__(self, pipe: Pipe, port: int) -> None:
        self._pipe = pipe
        self._port = port
        self._connecting = asyncio.Semaphore(CONNECTING_AT_A_TIME)
        self._waiting: dict[DeviceSocket, asyncio.Event] = {}
        self._wanted: int | None = None
        self._latencies = array("d")
        self._first_at = 0.0
        self._last_at = 0.0
        self._lost = 0
        self._end = asyncio.Event()

    async def serve(self, numbers: range) -> None:
        began_at = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(self._connect(number))
        # What came meanwhile is for the first call.
        self._send(first_at=began_at, last_at=perf_counter(), latencies=array("d"))
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._take_order)
        await self._end.wait()

    async def _connect(self, number: int) -> None:
        async with self._connecting:
            socket = await connect(self._port, token_of(number), secret_of(number), self)
            let_in = self._waiting.setdefault(socket, asyncio.Event())
            await let_in.wait()
            del self._waiting[socket]

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del ready
        self._waiting.setdefault(socket, asyncio.Event()).set()

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        socket.acknowledge(messages)
        self._last_at = now = perf_counter()
        if not self._latencies:
            self._first_at = now
        self._latencies.extend(now - _decode(message.payload).at for message in messages)
        self._answer()

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None:
        del socket, code
        self._lost += 1

    def _take_order(self) -> None:
        try:
            self._wanted = self._pipe.recv()
        except EOFError:
            self._end.set()
        else:
            self._answer()

    def _answer(self) -> None:
        if self._wanted is not None and len(self._latencies) >= self._wanted:
            self._wanted = None
            self._report()

    def _report(self) -> None:
        latencies, self._latencies = self._latencies, array("d")
        self._send(first_at=self._first_at, last_at=self._last_at, latencies=latencies)

    def _send(self, *, first_at: float, last_at: float, latencies: "array[float]") -> None:
        self._pipe.send(
            Received(first_at=first_at, last_at=last_at, lost=self._lost, latencies=latencies)
        )
