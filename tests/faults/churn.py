"""Everything comes and goes: connections, pushes, events, templates, apps and their providers."""

import asyncio
import itertools
import json
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import jwt
from websockets.asyncio.client import connect as connect_user

from bench.device import DeviceSocket, Notification, Ready, connect
from tests.faults.http_client import Answer, Connection

# The same ones again and again: what is remembered of users is bounded, but not soon full.
USERS = 50
CHANNELS = ["in_app", "stub"]
LIMIT_S = 60.0
HOOK = {"kind": "webhook", "settings": {"url": "https://hooks.example.com/x"}, "sandbox": True}


class Churn:
    """Clients of one server, each doing its rounds until it is stopped."""

    def __init__(
        self,
        port: int,
        gateway_port: int,
        app: dict[str, Any],
        admin_key: str,
        *,
        app_every_s: float = 0.0,
    ) -> None:
        """Create an app every so many seconds: what is remembered of callers is bounded, too."""
        self.rounds: Counter[str] = Counter()
        self._app_every_s = app_every_s
        self._port = port
        self._gateway_port = gateway_port
        self._app = app
        self._admin_key = admin_key
        self._users = itertools.cycle(f"user-{number}" for number in range(USERS))
        self._is_stopping = False

    async def run(self, seconds: float) -> None:
        """Do rounds of every kind for so long; each finishes the one it is in."""
        self._is_stopping = False
        kinds = (self.push, self.watch, self.listen, self.render, self.found, self.knock)
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._repeat(kind))
            await asyncio.sleep(seconds)
            self._is_stopping = True

    async def _repeat(self, kind: Callable[[Connection], Awaitable[None]]) -> None:
        while not self._is_stopping:
            # A connection of its own each time: they come and go, too.
            async with Connection(self._port) as connection, asyncio.timeout(LIMIT_S):
                await kind(connection)
            self.rounds[kind.__name__] += 1

    async def ask(
        self, connection: Connection, method: str, path: str, body: Any = None, key: str = ""
    ) -> Any:
        headers = {"authorization": f"Bearer {key or self._app['api_key']}"}
        data = b"" if body is None else json.dumps(body).encode()
        answer: Answer = await connection.ask(
            method, path, {**headers, "content-type": "application/json"}, data
        )
        assert answer.status < 300, (method, path, answer)
        return answer.json if answer.body else None

    # One round of each kind.

    async def push(self, connection: Connection) -> None:
        """A device registers, connects, gets messages, acknowledges them, and is deleted."""
        device = await self.ask(connection, "POST", "/v1/devices", {"platform": "clarion"})
        name, phone = device["device_id"], Phone()
        topic = f"/v1/devices/{name}/topics/news"
        await self.ask(connection, "PUT", "/v1/topics/news", {})
        await self.ask(connection, "PUT", topic)
        socket = await connect(self._gateway_port, device["token"], device["secret"], phone)
        message = {"payload": {"aps": {"alert": "hello"}}}
        for _ in range(3):
            await self.ask(connection, "POST", "/v1/topics/news/messages", message)
        await phone.receive(3)
        socket.cut()
        await self.ask(connection, "DELETE", topic)
        await self.ask(connection, "DELETE", f"/v1/devices/{name}")

    async def watch(self, connection: Connection) -> None:
        """A user opens a stream, gets a notification, and leaves."""
        user = next(self._users)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = (
            f"GET /v1/me/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.sign(user)}\r\n"
        )
        writer.write(head.encode() + b"\r\n")
        await reader.readuntil(b"event: ")
        await self.notify(connection, user)
        await reader.readuntil(b"event: ")
        writer.transport.abort()

    async def listen(self, connection: Connection) -> None:
        """A user opens a socket, gets a notification, reads all of them, and leaves."""
        user = next(self._users)
        url = f"ws://127.0.0.1:{self._gateway_port}/v1/me/socket"
        headers = {"Authorization": f"Bearer {self.sign(user)}"}
        async with connect_user(url, additional_headers=headers, ping_interval=None) as socket:
            await socket.recv()
            await self.notify(connection, user)
            await socket.recv()
        key = self.sign(user)
        await self.ask(connection, "POST", "/v1/me/notifications/read-all", {}, key=key)

    async def render(self, connection: Connection) -> None:
        """A template is changed, and rendered; so is a schema of a type."""
        body = f"{uuid.uuid4()} {{{{ order | upcase }}}} {{% if order %}}x{{% endif %}}"
        schema = {"type": "object", "properties": {"order": {"maxLength": 100}}}
        await self.ask(connection, "PUT", "/v1/types/ORDER", {"data_schema": schema})
        for channel in CHANNELS:
            path = f"/v1/types/ORDER/templates/{channel}"
            await self.ask(connection, "PUT", path, {"body": body, "variables": ["order"]})
        await self.notify(connection, next(self._users))

    async def found(self, connection: Connection) -> None:
        """An app is created with a provider, gets an event, and is deleted."""
        key = self._admin_key
        new = {"name": "New", "bundle_id": f"com.example.a{uuid.uuid4().hex}"}
        made = await self.ask(connection, "POST", "/v1/apps", new, key=key)
        own = made["api_key"]
        await self.ask(connection, "PUT", "/v1/providers/webhook/main", HOOK, key=own)
        await self.ask(connection, "PUT", "/v1/users/ana", {"name": "Ana"}, key=own)
        event = {"type": "POST_COMMENT", "recipient": {"user_id": "ana"}}
        await self.ask(connection, "POST", "/v1/events", event, key=own)
        await self.ask(connection, "DELETE", "/v1/providers/webhook/main", key=own)
        app_id = made["id"]
        await self.ask(connection, "DELETE", f"/v1/apps/{app_id}", key=key)
        await asyncio.sleep(self._app_every_s)

    async def knock(self, connection: Connection) -> None:
        """Strangers: wrong keys, unknown paths, broken bodies, a socket that says nothing."""
        for headers in ({}, {"authorization": f"Bearer {uuid.uuid4()}"}):
            for path in ("/v1/caller", f"/v1/users/{uuid.uuid4()}", f"/{uuid.uuid4()}"):
                await connection.ask("GET", path, headers)
        await connection.ask("POST", f"/3/device/{uuid.uuid4().hex}", {}, b"{")
        _, writer = await asyncio.open_connection("127.0.0.1", self._gateway_port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await writer.drain()
        writer.transport.abort()

    async def notify(self, connection: Connection, user: str) -> None:
        event = {"type": "ORDER", "recipient": {"user_id": user}, "data": {"order": "a"}}
        await self.ask(connection, "POST", "/v1/events", {**event, "channels": CHANNELS})

    async def prepare(self) -> None:
        """Create what all rounds use."""
        async with Connection(self._port) as connection:
            await self.ask(connection, "PUT", "/v1/types/ORDER", {"category": "transactional"})
            for channel in CHANNELS:
                path = f"/v1/types/ORDER/templates/{channel}"
                await self.ask(
                    connection, "PUT", path, {"body": "{{ order }}", "variables": ["order"]}
                )
            for number in range(USERS):
                user = {"attributes": {"stub": "ok"}}
                await self.ask(connection, "PUT", f"/v1/users/user-{number}", user)

    def sign(self, user: str) -> str:
        claims = {"sub": user, "aud": self._app["id"], "exp": time.time() + 600}
        return jwt.encode(claims, self._app["user_secret"], "HS256")


class Phone:
    """A device that acknowledges everything."""

    def __init__(self) -> None:
        self._count = 0
        self._progress = asyncio.Event()

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None: ...

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        socket.acknowledge(messages)
        self._count += len(messages)
        self._progress.set()

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None: ...

    async def receive(self, count: int) -> None:
        while self._count < count:
            self._progress.clear()
            await self._progress.wait()
