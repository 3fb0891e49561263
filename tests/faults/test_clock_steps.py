"""T22 for the gateway: a clock that is set forwards or back ends no connection and delays none."""

import asyncio
from pathlib import Path

import pytest

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import Installation, secret_of, token_of
from tests.faults.clarion_server import ClarionServer
from tests.faults.gateway.pushes import Provider, Push
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

STEPPED_CLOCK = Path(__file__).parent / "stepped_clock"
PATIENCE_S = 60.0
# One heart-beat of the server, and a little.
TICK_S = 6.0


class Device:
    """A device that says what happens to it."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[str] = asyncio.Queue()

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del socket, ready
        self.events.put_nowait("ready")

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        socket.acknowledge(messages)
        for message in messages:
            self.events.put_nowait(message.id)

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None:
        del socket
        self.events.put_nowait(f"closed {code}")

    async def next(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.events.get()


def make_push(number: int) -> Push:
    return Push(number=number, id=f"0190f000-0000-7000-8000-{number:012x}", device=0)


async def test_a_clock_that_is_set_ends_no_connection(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.write_text("0")
    environment = {"PYTHONPATH": str(STEPPED_CLOCK), "CLARION_TEST_CLOCK_ORDERS": str(orders)}
    async with ClarionServer(tmp_path, environment=environment) as server:
        installation = Installation.read(server.data)
        await installation.add_devices(1)
        device = Device()
        await connect(server.gateway_port, token_of(0), secret_of(0), device)
        assert await device.next() == "ready"
        for number, step_s in enumerate((61, -3_600)):
            orders.write_text(str(step_s))
            await asyncio.sleep(TICK_S)
            push = make_push(number)
            headers = installation.push_headers()
            await Provider(server.port, headers, [push]).push_all(rate=100)
            assert await device.next() == push.id
