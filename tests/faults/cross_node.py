"""A device on one node and a provider on another: how long a push takes from one to the other."""

import asyncio
import json
import time
from contextlib import suppress

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import secret_of, token_of
from tests.cluster.nodes import Node
from tests.faults.http_client import Connection

AWAY_S = 0.2


class CrossNode:
    """Pushes over one node to a device that is connected to another, and stays so."""

    def __init__(
        self, sender: Node, receiver: Node, device: int, headers: tuple[tuple[str, str], ...]
    ) -> None:
        self.is_ready = asyncio.Event()
        self.connections = 0
        self._sender = sender
        self._receiver = receiver
        self._device = device
        self._headers = dict(headers)
        self._number = 0
        self._arrived: dict[int, asyncio.Event] = {}
        self._closed = asyncio.Event()

    async def run(self) -> None:
        """Keep the device connected until cancelled."""
        token, secret = token_of(self._device), secret_of(self._device)
        while True:
            self._closed.clear()
            with suppress(OSError):
                port, host = self._receiver.gateway_port, self._receiver.host
                await connect(port, token, secret, self, host=host)
                await self._closed.wait()
            await asyncio.sleep(AWAY_S)

    async def push(self, within_s: float) -> float:
        """Push once, and return the seconds from the request until the device has it."""
        self._number += 1
        number, arrived = self._number, asyncio.Event()
        self._arrived[number] = arrived
        began = time.monotonic()
        async with Connection(self._sender.port, self._sender.host) as connection:
            body = json.dumps({"aps": {"alert": "x"}, "number": number}).encode()
            path = f"/3/device/{token_of(self._device)}"
            answer = await connection.ask("POST", path, self._headers, body)
        assert answer.status == 200, answer
        async with asyncio.timeout(within_s):
            await arrived.wait()
        return time.monotonic() - began

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del socket, ready
        self.connections += 1
        self.is_ready.set()

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        socket.acknowledge(messages)
        for message in messages:
            number = json.loads(bytes(message.payload))["number"]
            self._arrived.setdefault(number, asyncio.Event()).set()

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None:
        del socket, code
        self.is_ready.clear()
        self._closed.set()
