"""T22 on SQLite: a clock that is set forwards or back changes nothing for devices and retries."""

import asyncio
import time
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import Installation, secret_of, token_of
from tests.faults.app_client import AppClient
from tests.faults.clarion_server import ClarionServer
from tests.faults.gateway.pushes import Provider, Push
from tests.faults.sizes import SIZES
from tests.peers.http1 import Http1Peer
from tests.peers.http2 import Reply, Request

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

STEPPED_CLOCK = Path(__file__).parent / "stepped_clock"
PATIENCE_S = 60.0
HOUR_S = 3_600
# What the receiver of webhooks asks for between two attempts.
WAIT_S = 3
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


def make_environment(orders: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(STEPPED_CLOCK),
        "CLARION_TEST_CLOCK_ORDERS": str(orders),
        "CLARION_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
    }


async def test_a_clock_that_is_set_ends_no_connection(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.write_text("0")
    async with ClarionServer(tmp_path, environment=make_environment(orders)) as server:
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


class Receiver:
    """Asks for another attempt each time, and knows when each came by a clock that nobody sets."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def answer(self, _request: Request) -> Reply:
        self.times.append(time.monotonic())
        return Reply(status=503, headers={"retry-after": str(WAIT_S)})


async def test_retries_keep_their_times_while_the_clock_is_set(tmp_path: Path) -> None:
    """By an hour, back and forth: none comes early, and none waits for the clock."""
    orders, receiver = tmp_path / "orders", Receiver()
    orders.write_text("0")
    async with (
        Http1Peer(receiver.answer).serving(None) as peer,
        ClarionServer(tmp_path, environment=make_environment(orders)) as server,
        aclosing(Retried(server)) as retried,
    ):
        await retried.begin(f"http://127.0.0.1:{peer.port}/hook")
        for tries, step_s in enumerate((-HOUR_S, 0, HOUR_S, 0), 1):
            await retried.wait_for(tries)
            orders.write_text(str(step_s))
        await retried.wait_for(5)
    assert min(after - before for before, after in pairwise(receiver.times)) >= WAIT_S


class Retried:
    """An event whose webhook fails."""

    def __init__(self, server: ClarionServer) -> None:
        self._client = AppClient(server, server.app)
        self._event_id = ""

    async def aclose(self) -> None:
        self._client.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._client.ask(method, f"/v1/{path}", body)
        assert answer.status < 300, answer
        return answer.json

    async def begin(self, url: str) -> None:
        channels = {"default_channels": ["webhook"], "category": "transactional"}
        await self.ask(
            "PUT", "providers/webhook/main", {"kind": "webhook", "settings": {"url": url}}
        )
        await self.ask("PUT", "types/HOOKED", channels)
        await self.ask("PUT", "types/HOOKED/templates/webhook", {"body": "x", "variables": []})
        await self.ask("PUT", "users/ana", {})
        await self.ask("PATCH", "users/ana/preferences", {"quiet_hours": [False] * 24})
        event = {"type": "HOOKED", "recipient": {"user_id": "ana"}}
        self._event_id = (await self.ask("POST", "events", event))["event_id"]

    async def wait_for(self, tries: int) -> None:
        """Wait until so many attempts have failed, and the next one is planned."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.ask("GET", f"events/{self._event_id}"))["retry_count"] < tries:  # noqa: ASYNC110 - nothing signals us
                await asyncio.sleep(0.05)
