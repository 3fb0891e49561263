"""The bus of local sockets, beyond the contract of the port: what is full, slow, late or gone."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from clarion.nodes.local_bus import OUTBOX_BYTES, Frame, LocalBus

WITHIN_S = 30.0
MIB = 1024 * 1024


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def joined(*buses: LocalBus) -> AsyncIterator[None]:
    for number, bus in enumerate(buses):
        for other in buses[:number]:
            await link(bus, other)
    try:
        yield
    finally:
        await asyncio.gather(*(bus.close() for bus in buses))


async def link(one: LocalBus, two: LocalBus) -> None:
    ours, theirs = socket.socketpair()
    await asyncio.gather(one.join(two.number, ours), two.join(one.number, theirs))


class Silent:
    """The other end of a socket, by hand: it reads when the test says so."""

    def __init__(self) -> None:
        self.ours, self.end = socket.socketpair()
        self.ours.settimeout(0)

    async def read_frame(self) -> Frame:
        size = int.from_bytes(await self._read(4), "big")
        return msgspec.msgpack.decode(await self._read(size), type=Frame)

    async def _read(self, size: int) -> bytes:
        loop, read = asyncio.get_running_loop(), b""
        async with asyncio.timeout(WITHIN_S):
            while len(read) < size:
                part = await loop.sock_recv(self.ours, size - len(read))
                assert part, "the end of the socket"
                read += part
        return read


async def test_a_process_that_joins_learns_what_the_others_hold() -> None:
    one, two = LocalBus(1), LocalBus(2)
    for number in range(12_000):
        one.hold(f"device-{number}", number)
    async with joined(one, two):
        await two.wait_for_first_frames(WITHIN_S)
        asked = ["device-0", "device-11999", "other"]
        await until(lambda: "device-11999" in two._elsewhere)
        assert await two.find_held(asked) == {"device-0", "device-11999"}
        assert len(two._elsewhere) == 12_000


async def test_of_two_connections_from_before_they_met_the_newer_stays() -> None:
    one, two = LocalBus(1), LocalBus(2)
    replaced: dict[int, list[str]] = {1: [], 2: []}
    for bus in (one, two):
        bus.on_replaced(replaced[bus.number].extend)
    one.hold("a", 5)
    two.hold("a", 6)
    one.hold("b", 6)
    two.hold("b", 5)
    one.hold("same", 7)
    two.hold("same", 7)
    async with joined(one, two):
        await until(lambda: len(replaced[1]) + len(replaced[2]) == 3)
        assert replaced == {1: ["a", "same"], 2: ["b"]}
        assert await one.find_held(["a", "b", "same"]) == {"a", "same"}
        assert await two.find_held(["a", "b", "same"]) == {"b"}


async def test_the_end_of_a_process_is_a_gap_for_the_others() -> None:
    one, two, three = LocalBus(1), LocalBus(2), LocalBus(3)
    gaps: list[int] = []
    for bus in (one, two, three):
        bus.on_gap(partial(gaps.append, bus.number))
    async with joined(one, two, three):
        three.hold("d", 1)
        await three.settle()
        await three.close()
        await until(lambda: one.others == [2] and two.others == [1])
        assert await one.find_held(["d"]) == frozenset()
        await until(lambda: sorted(gaps) == [1, 2])


async def test_what_a_process_does_not_read_is_dropped_and_the_next_frame_says_so() -> None:
    bus, silent = LocalBus(1), Silent()
    await bus.join(2, silent.end)
    bus.hold("before", 1)
    for _ in range(3 * OUTBOX_BYTES // MIB):
        bus.publish("much", bytes(MIB))
        await asyncio.sleep(0)
    bus.hold("meanwhile", 2)
    bus.release("before")
    await asyncio.sleep(0)
    received, frame = 0, await silent.read_frame()
    assert frame.is_all
    while not frame.has_missed:
        frame = await silent.read_frame()
        received += sum(map(len, frame.messages.get("much", [])))
    assert OUTBOX_BYTES <= received <= OUTBOX_BYTES + 2 * MIB
    assert frame.is_all
    assert frame.held == {"meanwhile": 2}
    bus.publish("again", b"x")
    while "again" not in frame.messages:
        frame = await silent.read_frame()
    silent.ours.close()
    await bus.close()


async def test_nobody_waits_long_for_a_process_that_does_not_answer() -> None:
    bus, silent = LocalBus(1), Silent()
    await bus.join(2, silent.end)
    bus.hold("d", 1)
    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(bus.settle(), bus.settle())
        await bus.wait_for_first_frames(0.01)
    silent.ours.close()
    await bus.close()


async def test_a_process_that_misses_something_learns_it_from_the_frame() -> None:
    bus, other = LocalBus(1), Silent()
    gaps: list[None] = []
    bus.on_gap(lambda: gaps.append(None))
    await bus.join(2, other.end)
    for frame in (Frame(held={"d": 1}, is_all=True), Frame(is_all=True, has_missed=True)):
        content = msgspec.msgpack.encode(frame)
        other.ours.send(len(content).to_bytes(4, "big") + content)
    await until(lambda: gaps)
    assert await bus.find_held(["d"]) == frozenset()
    other.ours.close()
    await bus.close()


async def test_what_is_no_frame_ends_the_socket() -> None:
    bus, other = LocalBus(1), Silent()
    await bus.join(2, other.end)
    other.ours.send(b"\xff" * 8)
    await until(lambda: not bus.others)
    other.ours.close()


async def test_an_answer_covers_what_was_said_in_its_turn() -> None:
    """Also if the messages of a turn need several frames."""
    one, two = LocalBus(1), LocalBus(2)
    async with joined(one, two):
        settling = asyncio.ensure_future(one.settle())
        await asyncio.sleep(0)
        for number in range(50):
            one.publish("much", bytes(4096))
            one.hold(f"device-{number}", 1)
        await asyncio.gather(settling, one.settle())
        assert len(await two.find_held([f"device-{number}" for number in range(50)])) == 50
