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
NOT_AUTHORISED, REVOKED = 4401, 4410


class OneConnection:
    """A connection of a device, which does not reconnect."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()
        self.is_closed = asyncio.Event()
        self.code: int | None = None
        self._socket: DeviceSocket

    async def open(self, node: Node, token: str, secret: str) -> bool:
        """Connect to a node, and return whether it accepts the device."""
        self._socket = await connect(node.gateway_port, token, secret, self, host=node.host)
        waiting = [asyncio.create_task(each.wait()) for each in (self.is_ready, self.is_closed)]
        try:
            async with asyncio.timeout(POLL_LIMIT_S):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        return self.is_ready.is_set()

    def cut(self) -> None:
        """End it without a close frame."""
        self._socket.cut()

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


class ChangedDevice:
    """A device that connects to one node, and is changed on another."""

    def __init__(self, changer: Node, receiver: Node, headers: tuple[tuple[str, str], ...]) -> None:
        self._changer = changer
        self._receiver = receiver
        self._headers = dict(headers)
        self._path = "/v1/devices"
        self._token = self._secret = ""
        self._connection = OneConnection()

    async def register(self) -> None:
        """Register it, and connect it to the other node."""
        made = await self._ask({"platform": "clarion"})
        self._path += f"/{made['device_id']}"
        self._token, self._secret = made["token"], made["secret"]
        accepted = await self._connection.open(self._receiver, self._token, self._secret)
        assert accepted, self._connection.code

    async def invalidate(self) -> float:
        """Return the seconds until the other node has disconnected it, and lets it in no more."""
        self._path += "/invalidate"
        return await self._time_refusal({"reason": "revoked"})

    async def renew_secret(self) -> float:
        """Return the seconds until it is disconnected, and let in with the new secret alone."""
        self._path += "/secret"
        return await self._time_refusal({})

    async def _time_refusal(self, change: object) -> float:
        began = time.monotonic()
        changed = await self._ask(change)
        async with asyncio.timeout(POLL_LIMIT_S):
            while await self._connect(self._secret) != NOT_AUTHORISED:
                pass
            await self._connection.is_closed.wait()
            while "secret" in changed and await self._connect(changed["secret"]) is not None:
                pass
        assert self._connection.code == REVOKED
        return time.monotonic() - began

    async def _ask(self, body: object) -> dict[str, str]:
        async with Connection(self._changer.port, self._changer.host) as connection:
            data = json.dumps(body).encode()
            answer = await connection.ask("POST", self._path, self._headers, data)
        assert answer.status in {200, 201}, answer
        found: dict[str, str] = answer.json
        return found

    async def _connect(self, secret: str) -> int | None:
        """Connect and leave; return the code with which the node refused that, or None."""
        connection = OneConnection()
        if not await connection.open(self._receiver, self._token, secret):
            assert connection.code is not None
            return connection.code
        connection.cut()
        return None


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
