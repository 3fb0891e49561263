"""A push that goes from node to node over Redis: what both nodes and the wire spend on it."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

import uvloop

from bench.table import Row, size
from clarion.clock import SystemClock
from clarion.nodes.redis.breaker import make_breaker
from clarion.nodes.redis.bus import RedisBus
from tests.servers import RedisCluster, RedisServer

DEVICES = [f"0190f000-0000-7000-8000-{number:012x}" for number in range(5_000)]
MESSAGE = bytes(400)
# Pushes that a node accepts in one turn of its loop: alone, and under load.
AT_A_TIME = (1, 10, 50)
# What a push may cost the sender and the receiver together, under load.
MARK_S = 15e-6
SUBJECT = "push.message"


def measure(seconds: float) -> Iterator[Row]:
    """Measure on one server and on a Cluster."""
    with RedisServer() as server:
        yield from uvloop.run(_measure(server.url, "one server", seconds))
    with RedisCluster() as cluster:
        yield from uvloop.run(_measure(cluster.url, "Cluster of three", seconds))


async def _measure(url: str, what: str, seconds: float) -> list[Row]:
    """Both nodes are in this process: its processor time is that of sender and receiver."""
    async with _joined(url) as sender, _joined(url) as receiver:
        for device in DEVICES:
            receiver.hold(device, 1)
        await receiver.settle()
        arrivals = _Arrivals()
        receiver.subscribe(SUBJECT, arrivals)
        return [await _forward(sender, arrivals, each, what, seconds) for each in AT_A_TIME]


@dataclass
class _Arrivals:
    """Counts what arrives, and wakes whoever waits for all of it."""

    expected: int = 0
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, said: Sequence[bytes]) -> None:
        self.expected -= len(said)
        if not self.expected:
            self.all_here.set()


async def _forward(
    sender: RedisBus, arrivals: _Arrivals, count: int, what: str, seconds: float
) -> Row:
    took_s: list[float] = []
    chosen = [random.sample(DEVICES, count) for _ in range(200)]
    sent_bytes, cpu_s = sender.counts.bytes_sent, time.process_time()
    until = time.perf_counter() + seconds
    while (started := time.perf_counter()) < until:
        arrivals.expected = count
        arrivals.all_here.clear()
        for device in chosen[len(took_s) % len(chosen)]:
            sender.send_to_holder(SUBJECT, device, MESSAGE)
        await arrivals.all_here.wait()
        took_s.append(time.perf_counter() - started)
    pushes = count * len(took_s)
    per_push_s = (time.process_time() - cpu_s) / pushes
    wire = size((sender.counts.bytes_sent - sent_bytes) / pushes)
    note = f"{wire} over the bus"
    if count == AT_A_TIME[-1]:
        note += f", {per_push_s / MARK_S:.2f} of the mark"
    ordered = sorted(took_s)
    return Row(
        what=f"push of 400 bytes to another node, {count} at a time, {what}",
        throughput=pushes / seconds,
        p50_s=ordered[len(ordered) // 2],
        p99_s=ordered[len(ordered) * 99 // 100],
        cpu_s=per_push_s,
        note=note,
    )


@contextlib.asynccontextmanager
async def _joined(url: str) -> AsyncIterator[RedisBus]:
    """A node, as the server runs it, from when it hears."""
    breaker = make_breaker(url, "bench")
    await breaker.check()
    bus = RedisBus(breaker, SystemClock(), name="bench")
    loops = [asyncio.ensure_future(run()) for run in (breaker.run, *bus.loops.values())]
    try:
        await bus.check()
        yield bus
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await bus.close()
        breaker.client.close()
