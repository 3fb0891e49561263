"""A device on one node and a provider on another: how long a push takes from one to the other."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import secret_of, token_of
from tests.cluster.nodes import Node
from tests.faults.cluster_run import ClusterRun
from tests.faults.http_client import Connection
from tests.faults.sizes import SIZES

AWAY_S = 0.2
POLL_LIMIT_S = 60.0
NORMAL_S = 1.0


class OneConnection:
    """A connection of a device, which does not reconnect."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()
        self.is_closed = asyncio.Event()
        self.code: int | None = None

    async def open(self, node: Node, device: int, secret: str | None = None) -> None:
        """Connect a device to a node, and return when the node has accepted or refused it."""
        secret = secret or secret_of(device)
        await connect(node.gateway_port, token_of(device), secret, self, host=node.host)
        waiting = [asyncio.create_task(each.wait()) for each in (self.is_ready, self.is_closed)]
        try:
            async with asyncio.timeout(POLL_LIMIT_S):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def close_code(self, within_s: float) -> int | None:
        """Return the code with which the node closes it."""
        async with asyncio.timeout(within_s):
            await self.is_closed.wait()
        return self.code

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del socket, ready
        self.is_ready.set()

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        socket.acknowledge(messages)

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None:
        del socket
        self.code = code
        self.is_closed.set()


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

    async def delete(self, device_id: str, headers: tuple[tuple[str, str], ...]) -> float:
        """Delete the device, and return the seconds until its connection is closed."""
        began = time.monotonic()
        async with Connection(self._sender.port, self._sender.host) as connection:
            path = f"/v1/devices/{device_id}"
            answer = await connection.ask("DELETE", path, dict(headers))
        assert answer.status == 204, answer
        async with asyncio.timeout(POLL_LIMIT_S):
            await self._closed.wait()
        return time.monotonic() - began

    def list_missed(self) -> list[int]:
        """Return which of the pushes have not arrived."""
        return [number for number, arrived in self._arrived.items() if not arrived.is_set()]

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


@asynccontextmanager
async def crossing(run: ClusterRun) -> AsyncIterator[CrossNode]:
    """A device on the second node, and a provider on the first."""
    sender, receiver, _ = run.cluster.nodes
    cross = CrossNode(sender, receiver, SIZES.cluster_devices, run.installation.push_headers())
    task = asyncio.create_task(cross.run())
    try:
        await cross.is_ready.wait()
        yield cross
    finally:
        task.cancel()


async def time_normal(cross: CrossNode) -> float:
    """Return after how long pushes cross within a second again."""
    began = time.monotonic()
    while await cross.push(POLL_LIMIT_S) > NORMAL_S:
        pass
    return time.monotonic() - began
