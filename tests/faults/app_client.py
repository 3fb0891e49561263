"""An app that sends events, and a user of it who watches the inbox."""

import asyncio
import json
import time
import uuid
from typing import Any

import jwt

from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Answer, Connection

TYPE = "ORDER_READY"
USER = "user-0"
SEEN_LIMIT_S = 60.0
TOKEN_S = 3600


def draft(recipient: dict[str, Any], label: str = "x") -> dict[str, Any]:
    return {"type": TYPE, "recipient": recipient, "data": {"label": label}}


class AppClient:
    """One app: a connection of its own, and the stream of its first user."""

    def __init__(self, server: ClarionServer, app: dict[str, Any]) -> None:
        self._port = server.port
        self._app = app
        self._connection = Connection(server.port)
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        self._connection.close()
        if self._stream is not None:
            self._stream[1].transport.abort()
            self._stream = None

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        key = self._app["api_key"]
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        data = b"" if body is None else json.dumps(body).encode()
        return await self._connection.ask(method, path, headers, data)

    async def set_up(self, users: int) -> None:
        """Create the type and users; in_app is not subject to quiet hours."""
        template = {"body": "{{ label }}", "variables": ["label"]}
        await self.ask("PUT", f"/v1/types/{TYPE}", {"default_channels": ["in_app"]})
        await self.ask("PUT", f"/v1/types/{TYPE}/templates/in_app", template)
        for number in range(users):
            answer = await self.ask("PUT", f"/v1/users/user-{number}", {})
            assert answer.status < 300, answer

    async def time_delivery(self) -> float:
        """Return the seconds from an event to the notification that its user sees."""
        reader, label = await self._watch(), uuid.uuid4().hex
        started = time.monotonic()
        answer = await self.ask("POST", "/v1/events", draft({"user_id": USER}, label))
        assert answer.status == 202, answer
        async with asyncio.timeout(SEEN_LIMIT_S):
            await see(reader, label)
        return time.monotonic() - started

    async def _watch(self) -> asyncio.StreamReader:
        if self._stream is None:
            claims = {"sub": USER, "aud": self._app["id"], "exp": time.time() + TOKEN_S}
            token = jwt.encode(claims, self._app["user_secret"], "HS256")
            reader, writer = self._stream = await asyncio.open_connection("127.0.0.1", self._port)
            head = f"GET /v1/me/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"event: state")
        return self._stream[0]


async def see(reader: asyncio.StreamReader, label: str) -> None:
    """Read a stream until it shows the notification with this label."""
    while label.encode() not in await reader.readuntil(b"\n\n"):
        pass
