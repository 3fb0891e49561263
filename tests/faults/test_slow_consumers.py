"""T19: connections that stop reading under a flow of broadcasts, beside many that read."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median

import pytest

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import secret_of, token_of
from clarion.push.connections import Connection
from clarion.push.model import StoragePolicy
from clarion.push.session import ACK_LIMIT_MS, IN_FLIGHT_LIMIT, MAILBOX_LIMIT
from clarion.push.sockets import DeviceSocket as ServerSocket
from clarion.push.topic_dispatch import CHUNK
from tests.factories import DAY, make_broadcast
from tests.faults.gateway.in_process import PATIENCE_S, Gateway, open_gateway, until
from tests.faults.gateway.lazy_device import LazyDevice
from tests.faults.sizes import SIZES
from tests.lanes import is_measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

TOO_SLOW = 4429
TOPIC = "news"
STEP_MS = 5_000
WINDOWS = 5
MEBIBYTE = 1 << 20
# Of what is written to a connection that does not read, beyond the buffers of the system.
WRITE_LIMIT_BYTES = MEBIBYTE
RESIDENT_LIMIT_BYTES = 100 * MEBIBYTE
# What other work on this machine may add to a percentile. A server that waited for one slow client
# would add seconds.
NOISE_S = 0.5


class Reader:
    """A device that reads and acknowledges everything, and notes how long it took."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.latencies: list[float] = []
        self.ready = asyncio.Event()

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del socket, ready
        self.ready.set()

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        now = time.perf_counter()
        for message in messages:
            # One text for all readers: what the server holds is measured in the same process.
            self.ids.add(sys.intern(message.id))
            self.latencies.append(now - SENT_AT.get(message.id, now))
        socket.acknowledge(messages)

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None: ...


SENT_AT: dict[str, float] = {}
SLOW = range(SIZES.slow_consumers)
READING = range(SIZES.slow_consumers, SIZES.consumers)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with open_gateway(tmp_path, SIZES.consumers) as opened:
        await subscribe(opened, READING)
        yield opened


async def subscribe(gateway: Gateway, numbers: range) -> None:
    for number in numbers:
        assert await gateway.dispatch.topics.subscribe(gateway.devices[number], TOPIC)


async def start_reading(gateway: Gateway, number: int) -> Reader:
    reader = Reader()
    await connect(gateway.port, token_of(number), secret_of(number), reader)
    await asyncio.wait_for(reader.ready.wait(), PATIENCE_S)
    return reader


async def broadcast(gateway: Gateway) -> list[str]:
    """Publish messages of a kilobyte at a steady rate; return their ids."""
    ids = []
    began = time.perf_counter()
    for number in range(SIZES.broadcasts):
        due = began + number / SIZES.broadcasts_per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        ids.append(await publish(gateway, due))
    return ids


async def publish(gateway: Gateway, due: float) -> str:
    now = gateway.clock.now()
    payload = b'{"text":"%s"}' % (b"x" * 1000)
    message = make_broadcast(TOPIC, payload=payload, created_at=now, expires_at=now + DAY)
    SENT_AT[message.id] = due
    assert await gateway.dispatch.topics.publish(message, StoragePolicy.ALL) is True
    return message.id


async def measure(gateway: Gateway, readers: list[Reader]) -> tuple[list[str], float]:
    """Broadcast; return the ids and the 99th percentile of what the readers waited.

    It is the median of several, because other work on the machine spoils one or two of them.
    """
    for reader in readers:
        reader.ids.clear()
        reader.latencies.clear()
    ids = await broadcast(gateway)
    await until(lambda: all(reader.ids.issuperset(ids) for reader in readers))
    return ids, median(find_percentile(readers, window) for window in range(WINDOWS))


def find_percentile(readers: list[Reader], window: int) -> float:
    """Return the 99th percentile of one part of the broadcasts."""
    size = SIZES.broadcasts // WINDOWS
    part = slice(window * size, (window + 1) * size)
    latencies = sorted(each for reader in readers for each in reader.latencies[part])
    return latencies[len(latencies) * 99 // 100]


def queue_of(connection: Connection) -> tuple[int, int]:
    """Return how many messages and how many bytes the server holds for a connection."""
    assert isinstance(connection, ServerSocket)
    session, transport = connection.session, connection._transport
    assert transport is not None
    messages = len(session._mailbox or ()) + len(session._in_flight or ())
    return messages, transport.underlying_transport.get_write_buffer_size()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def let_time_pass(gateway: Gateway, slow: list[LazyDevice], limit_ms: int) -> None:
    """Let the time of the server pass, in which all devices go on as they do."""
    for _ in range(0, limit_ms, STEP_MS):
        gateway.clock.advance(STEP_MS)
        for device in slow:
            await device.send({"type": "ping"})
        await publish(gateway, time.perf_counter())
        await asyncio.sleep(0.1)
        await gateway.listener.tick()


@pytest.mark.watched
async def test_slow_consumers_are_closed_lose_nothing_and_delay_nobody(
    gateway: Gateway, figures: Callable[[str], None]
) -> None:
    readers = [await start_reading(gateway, number) for number in READING]
    _, alone_s = await measure(gateway, readers)
    before = resident_bytes()
    await subscribe(gateway, SLOW)
    slow = [await LazyDevice.connect(gateway.port) for _ in SLOW]
    for number, device in zip(SLOW, slow, strict=True):
        await device.send_hello(number)
    connections = [gateway.connections.get(gateway.devices[number].id) for number in SLOW]
    ids, beside_s = await measure(gateway, readers)
    queues = [queue_of(each) for each in connections if each is not None]
    grown = resident_bytes() - before
    figures(
        f"slow consumers: {len(slow)} of {SIZES.consumers:,}, {len(ids)} broadcasts of 1 kB at "
        f"{SIZES.broadcasts_per_second:g}/s; at most {max(n for n, _ in queues)} messages and "
        f"{max(size for _, size in queues):,} bytes held for one; +{grown / MEBIBYTE:.0f} MiB; "
        f"p99 of the others {alone_s * 1000:.1f} ms alone, {beside_s * 1000:.1f} ms beside them"
    )
    assert max(messages for messages, _ in queues) <= MAILBOX_LIMIT + IN_FLIGHT_LIMIT + CHUNK
    assert max(size for _, size in queues) <= WRITE_LIMIT_BYTES
    assert grown < RESIDENT_LIMIT_BYTES
    assert beside_s < 1.2 * alone_s + NOISE_S or not is_measured()
    await let_time_pass(gateway, slow, ACK_LIMIT_MS + STEP_MS)
    assert [gateway.connections.get(gateway.devices[number].id) for number in SLOW] == [None] * len(
        slow
    )
    assert {await device.read_to_the_end() for device in slow} == {TOO_SLOW}
    for device in slow:
        device.leave()
    back = [await start_reading(gateway, number) for number in SLOW]
    await until(lambda: all(reader.ids.issuperset(ids) for reader in back))
