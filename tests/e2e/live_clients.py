"""Users with inboxes, and the live clients in which they see them."""

import asyncio
import http.client
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import jwt
from pyreqwest.client import SyncClientBuilder
from websockets.asyncio.client import ClientConnection, connect

from clarion.store.opening import open_engine
from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.inbox import put

LIMIT_S = 100


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    id: str
    name: str
    data: dict[str, Any]


@dataclass
class InboxUser:
    """A user of the app of the first run."""

    server: Server
    id: str = field(default_factory=lambda: f"ana-{uuid.uuid4().hex}")

    @property
    def token(self) -> str:
        return self.make_token()

    def make_token(self, life_s: float = 600) -> str:
        app = self.server.first["app"]
        claims = {"sub": self.id, "aud": app["id"], "exp": time.time() + life_s}
        return jwt.encode(claims, app["user_secret"], algorithm="HS256")

    @property
    def me(self) -> Asker:
        return self.server.with_key(self.token)

    def apply(self, action: str, notification_id: str) -> Any:
        answer = self.me.post(f"/v1/me/notifications/{notification_id}/{action}")
        assert answer.status == 200, answer.body
        return answer.json

    def add(self, count: int = 1) -> list[str]:
        """Put notifications into the inbox, and have its clients look; return their ids."""
        made = asyncio.run(self._add(count))
        # Whatever a user does has all clients of the user look, also if it changes nothing.
        assert self.me.post(f"/v1/me/notifications/{uuid.uuid4()}/read").status == 404
        return made

    async def _add(self, count: int) -> list[str]:
        installation = self.server.installation
        url = installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            app_id = self.server.first["app"]["id"]
            return [
                (await put(engine, app_id, self.id, id=str(uuid.uuid4()))).id for _ in range(count)
            ]
        finally:
            await engine.close()

    @contextmanager
    def watch(self, query: str = "", **headers: str) -> Iterator["Stream"]:
        """Open a stream over HTTP/1.1."""
        port = self.server.installation.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        given = {"Authorization": f"Bearer {self.token}"} | headers
        connection.request("GET", f"/v1/me/stream{query}", headers=given)
        try:
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            yield Stream(answer.readline)
        finally:
            connection.close()

    @contextmanager
    def watch_by_http_2(self) -> Iterator["Stream"]:
        url = f"http://127.0.0.1:{self.server.installation.port}/v1/me/stream"
        client = SyncClientBuilder().http2(enable=True).http2_prior_knowledge().build()
        asked = client.get(url).bearer_auth(self.token).timeout(timedelta(seconds=LIMIT_S))
        with client, asked.streamed_read_buffer_limit(0).build_streamed() as answer:
            assert (answer.status, answer.version) == (200, "HTTP/2.0")
            lines = _lines(answer.body_reader.read_chunk)
            yield Stream(lambda: next(lines))

    @asynccontextmanager
    async def listen(self, hello: dict[str, Any] | None = None) -> AsyncIterator["Socket"]:
        """Open a socket, with the token in the header if no hello is given."""
        url = f"ws://127.0.0.1:{self.server.installation.gateway_port}/v1/me/socket"
        headers = None if hello else {"Authorization": f"Bearer {self.token}"}
        async with connect(url, additional_headers=headers, ping_interval=None) as connection:
            if hello:
                await connection.send(json.dumps(hello))
            yield Socket(connection)


Watch = Callable[[], AbstractContextManager["Stream"]]


class Stream:
    """The events of an open stream, one after the other."""

    def __init__(self, read_line: Callable[[], bytes]) -> None:
        self._read_line = read_line

    def next(self) -> Event | None:
        """Return the next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        while line := self._read_line():
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif "data" in fields:
                data = json.loads(fields["data"])
                return Event(fields.get("id", ""), fields["event"], data)
        return None

    def take(self) -> Event:
        event = self.next()
        assert event is not None, "the stream has ended"
        return event


class Socket:
    """The frames of an open socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def take(self) -> dict[str, Any]:
        text = await asyncio.wait_for(self.connection.recv(), LIMIT_S)
        frame: dict[str, Any] = json.loads(text)
        return frame

    async def send(self, **frame: Any) -> None:
        await self.connection.send(json.dumps(frame))


def _lines(read_chunk: Callable[[], Any]) -> Iterator[bytes]:
    rest = b""
    while chunk := read_chunk():
        *lines, rest = (rest + bytes(chunk)).split(b"\n")
        yield from (line + b"\n" for line in lines)
    yield b""
