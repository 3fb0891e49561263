"""The other end: devices as an app registers them, and as they connect and listen."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect

from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer

PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Device:
    """A registered device and what it needs to connect."""

    id: str
    token: str
    secret: str


class Answer(NamedTuple):
    """What the API said."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """The calls of an app's own server that the tests need."""

    def __init__(self, port: int, provider: Provider) -> None:
        self._port = port
        self._key = provider.api_key

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: object) -> Answer:
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body)
        connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return Answer(response.status, response.read())
        finally:
            connection.close()

    async def register(self, token: str | None = None) -> Device:
        wanted = {"platform": "clarion"} | ({"token": token} if token else {})
        answer = await self.ask("POST", "/v1/devices", wanted)
        assert answer.status in (200, 201), answer
        made = answer.json
        return Device(id=made["device_id"], token=made["token"], secret=made.get("secret", ""))

    async def invalidate(self, device: Device, reason: str = "revoked") -> None:
        path = f"/v1/devices/{device.id}/invalidate"
        assert (await self.ask("POST", path, {"reason": reason})).status == 200

    async def subscribe(self, device: Device, channel_id: str) -> None:
        path = f"/v1/devices/{device.id}/topics/{channel_id}"
        assert (await self.ask("PUT", path)).status == 204

    async def status_of(self, device: Device, message_id: str) -> tuple[str, str | None]:
        """What became of a message: its status and the reason for it."""
        answer = await self.ask("GET", f"/v1/devices/{device.id}/messages/{message_id}")
        assert answer.status == 200, answer
        return answer.json["status"], answer.json["reason"]

    async def wait_for(self, device: Device, message_id: str, status: str) -> None:
        """Ask until this has become of a message."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.status_of(device, message_id))[0] != status:
                pass

    async def is_healthy(self) -> bool:
        answer = await self.ask("GET", "/health")
        return answer.status == 200 and answer.json["status"] == "healthy"


class Socket:
    """A device's open connection. What it takes it acknowledges."""

    def __init__(self, connection: ClientConnection, pending: int) -> None:
        self._connection = connection
        self.pending = pending

    async def take(self) -> dict[str, Any]:
        """Wait for the next notification."""
        async with asyncio.timeout(PATIENCE_S):
            frame = await self._next()
            await self._connection.send(json.dumps({"type": "ack", "id": frame["id"]}))
            return frame

    async def take_many(self, count: int) -> list[dict[str, Any]]:
        return [await self.take() for _ in range(count)]

    async def take_until(self, last_id: str) -> list[str]:
        """Take notifications up to this one, and return the ids of those before it."""
        before: list[str] = []
        while (taken := (await self.take())["id"]) != last_id:
            before.append(taken)
        return before

    async def _next(self) -> dict[str, Any]:
        while True:
            frame: dict[str, Any] = json.loads(await self._connection.recv())
            if frame["type"] == "notification":
                return frame


@asynccontextmanager
async def listening(server: ConformanceServer, device: Device) -> AsyncIterator[Socket]:
    """Connect a device; inside, it is online and knows how many messages wait for it."""
    address = f"ws://127.0.0.1:{server.gateway_port}/v1/gateway"
    async with connect(address) as connection:
        hello = {"type": "hello", "token": device.token, "secret": device.secret}
        await connection.send(json.dumps(hello))
        ready = json.loads(await asyncio.wait_for(connection.recv(), PATIENCE_S))
        assert ready["type"] == "ready", ready
        yield Socket(connection, ready["pending"])


def bodies(taken: Iterable[dict[str, Any]]) -> list[object]:
    """The payloads of notifications."""
    return [frame["payload"] for frame in taken]
