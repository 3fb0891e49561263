"""T19 for one device: one that is too slow is disconnected, or trimmed, and loses nothing by it."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bench.device import TEXT, DeviceSocket, Notification, Ready, connect
from bench.installation import Installation, secret_of, token_of
from clarion.push.model import MessageStatus
from clarion.push.session import ACK_LIMIT_MS, IN_FLIGHT_LIMIT
from clarion.sockets.protocol import HELLO_TIMEOUT_S
from clarion.sockets.shell import CLOSE_LIMIT_MS, PAUSE_LIMIT_MS
from tests.factories import make_message
from tests.faults.clarion_server import ClarionServer
from tests.faults.gateway.history import Record, read_history
from tests.faults.gateway.in_process import PATIENCE_S, Gateway, open_gateway, until
from tests.faults.gateway.lazy_device import LazyDevice
from tests.faults.gateway.pushes import Provider, Push
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

TOO_SLOW = 4429
TIMED_OUT = 4408
BACKLOG = 10_000
STORED = 1_000
# As many as the gateway lets be above that, so that it need not look at every push.
SLACK = STORED // 16


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with open_gateway(tmp_path) as opened:
        yield opened


class GoodDevice:
    """A device that takes and acknowledges everything."""

    def __init__(self) -> None:
        self.received: list[Notification] = []
        self.code: int | None = None
        self._progress = asyncio.Event()

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None: ...

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        self.received += messages
        socket.acknowledge(messages)
        self._progress.set()

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None: ...

    async def receive(self, count: int) -> list[str]:
        """Return the ids of all that came, as soon as it is so many."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.received) < count:
                self._progress.clear()
                await self._progress.wait()
        return [message.id for message in self.received]


async def send_too_much(gateway: Gateway) -> list[str]:
    """Send more than fits between the two ends, and wait until the gateway has noticed."""
    ids = [await gateway.send(b'{"text":"%s"}' % (b"x" * 4000)) for _ in range(2 * IN_FLIGHT_LIMIT)]
    await until(lambda: gateway.socket.session.is_paused)
    return ids


async def check_nothing_is_lost(gateway: Gateway, ids: list[str]) -> None:
    device = GoodDevice()
    connection = await connect(gateway.port, token_of(0), secret_of(0), device)
    assert set(await device.receive(len(ids))) == set(ids)
    async with asyncio.timeout(PATIENCE_S):
        while await gateway.messages.count_waiting(gateway.device.id, now=0, limit=1):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    connection.cut()


async def test_a_slow_reader_is_closed_with_a_code_and_loses_nothing(gateway: Gateway) -> None:
    slow = await LazyDevice.connect(gateway.port)
    await slow.send_hello()
    ids = await send_too_much(gateway)
    gateway.clock.advance(PAUSE_LIMIT_MS + 1)
    gateway.socket.tick(gateway.clock.now())
    assert gateway.connections.get(gateway.device.id) is None
    assert await slow.read_to_the_end() == TOO_SLOW
    slow.leave()
    await check_nothing_is_lost(gateway, ids)


async def test_a_reader_that_never_reads_again_is_cut_off(gateway: Gateway) -> None:
    """It cannot hold its connection open by not reading the close frame."""
    slow = await LazyDevice.connect(gateway.port)
    await slow.send_hello()
    ids = await send_too_much(gateway)
    connection = gateway.socket
    gateway.clock.advance(PAUSE_LIMIT_MS + 1)
    connection.tick(gateway.clock.now())
    gateway.clock.advance(CLOSE_LIMIT_MS)
    connection.tick(gateway.clock.now())
    assert await slow.read_to_the_end() is None
    slow.leave()
    await check_nothing_is_lost(gateway, ids)


async def test_a_device_that_does_not_acknowledge_is_closed_and_loses_nothing(
    gateway: Gateway,
) -> None:
    forgetful = await LazyDevice.connect(gateway.port)
    await forgetful.send_hello()
    ids = [await gateway.send(b'{"text":"short"}') for _ in range(3)]
    gateway.clock.advance(ACK_LIMIT_MS - 1)
    await forgetful.send({"type": "ping"})
    assert [(await forgetful.read_frame())[0] for _ in range(len(ids) + 1)] == [TEXT] * 4
    gateway.clock.advance(1)
    gateway.socket.tick(gateway.clock.now())
    assert await forgetful.read_to_the_end() == TOO_SLOW
    forgetful.leave()
    await check_nothing_is_lost(gateway, ids)


async def test_the_rest_goes_out_when_a_slow_reader_reads_again(gateway: Gateway) -> None:
    slow = await LazyDevice.connect(gateway.port)
    await slow.send_hello()
    ids = await send_too_much(gateway)
    received: list[str] = []
    while len(received) < len(ids):
        _, payload = await slow.read_frame()
        received.append(json.loads(payload)["id"])
        await slow.send({"type": "ack", "id": received[-1]})
    assert received == ids
    slow.leave()


async def test_a_connection_without_a_hello_is_4408(gateway: Gateway) -> None:
    began = asyncio.get_running_loop().time()
    silent = await LazyDevice.connect(gateway.port)
    assert await silent.read_to_the_end() == TIMED_OUT
    assert asyncio.get_running_loop().time() - began > HELLO_TIMEOUT_S - 1
    silent.leave()


async def test_a_repeated_push_brings_what_was_stored_and_not_offered(gateway: Gateway) -> None:
    """As after a commit whose answer was lost: the repeat must not leave the message lying."""
    device = GoodDevice()
    connection = await connect(gateway.port, token_of(0), secret_of(0), device)
    await gateway.send(b'{"text":"we are connected"}')
    await device.receive(1)
    message = make_message(gateway.device.id, app_id=gateway.device.app_id)
    await gateway.messages.add(message, MessageStatus.PENDING, None)
    assert not await gateway.push(message.id, message.payload)
    assert (await device.receive(2))[1] == message.id
    connection.cut()


def backlog() -> list[Push]:
    """To one device: every twentieth of high priority, the others of low."""
    return [
        Push(
            number=number,
            id=str(uuid.uuid4()),
            device=0,
            priority=10 if number % 20 == 0 else 1,
        )
        for number in range(BACKLOG)
    ]


async def test_a_backlog_beyond_the_limit_is_trimmed(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """The oldest of low priority expire as `overflow`; the rest arrives, high priority first."""
    pushes = {push.id: push for push in backlog()}
    environment = {
        "CLARION_DEVICE_MESSAGES_PER_MINUTE": "1000000",
        "CLARION_DEVICE_STORED": str(STORED),
    }
    async with ClarionServer(tmp_path, environment=environment) as server:
        installation = Installation.read(server.data)
        device_ids = await installation.add_devices(1)
        provider = Provider(server.port, installation.push_headers(), list(pushes.values()))
        await provider.push_all(rate=100_000)
        assert provider.accepted == set(pushes)
        newest_first = (await read_history(server, device_ids, [0]))[0]
        kept = [record.id for record in newest_first if record.status == "queued"]
        device = GoodDevice()
        await connect(server.gateway_port, token_of(0), secret_of(0), device)
        received = await device.receive(len(kept))
    figures(f"gateway backlog: {len(newest_first):,} accepted, {len(kept):,} kept and received")
    assert STORED <= len(kept) <= STORED + SLACK
    assert {(r.status, r.reason) for r in newest_first if r.id not in kept} == {
        ("expired", "overflow")
    }
    best = best_first(newest_first, pushes)[: len(kept)]
    assert sorted(kept) == sorted(best)
    assert [pushes[i].priority for i in received] == sorted(
        (pushes[i].priority for i in received), reverse=True
    )


def best_first(newest_first: list[Record], pushes: dict[str, Push]) -> list[str]:
    """High priority first, and the newest of each first (the sort keeps their order)."""
    ids = [record.id for record in newest_first]
    return sorted(ids, key=lambda message_id: -pushes[message_id].priority)
