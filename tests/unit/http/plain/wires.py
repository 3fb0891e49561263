"""A listener with an application of the test's own, and the client's end of connections to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from clarion.http.plain.limits import OpenConnections
from clarion.http.plain.listener import PlainListener
from clarion.settings.types import ListenAddress
from clarion.telemetry.limited_log import LimitedLog
from tests.factories import FixedClock
from tests.processes import free_port

Application = Callable[[Any, Any, Any], Awaitable[None]]
LIMIT_S = 10.0


class Client:
    """Sends bytes, and reads what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def read_until(self, end: bytes) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readuntil(end)

    async def read_all(self) -> bytes:
        """Read until the server closes the connection."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()

    async def read_rest(self) -> bytes:
        """Read until the connection is closed or reset."""
        try:
            return await self.read_all()
        except ConnectionError:
            return b""


class Plain:
    """A running listener."""

    def __init__(self, listener: PlainListener, connections: OpenConnections, port: int) -> None:
        self.listener = listener
        self.connections = connections
        self.port = port

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    async def exchange(self, *parts: bytes) -> bytes:
        """Send some parts, and return all that comes back until the connection is closed."""
        async with self.connect() as client:
            await client.send(*parts)
            return await client.read_all()


class NoTunnels:
    """Stands in where no HTTP/2 is spoken."""

    def open(self, client: Any, first: bytes) -> Any:
        raise AssertionError(client, first)

    async def stop(self, grace_s: float) -> None: ...


@asynccontextmanager
async def listen(app: Application, tunnels: Any = None, **options: Any) -> AsyncIterator[Plain]:
    """Serve an application on a free port."""
    clock, port = FixedClock(), free_port()
    passed_on: Any = tunnels or NoTunnels()
    limits: dict[str, Any] = {
        "limit": 1_000,
        "address_limit": 1_000,
        **{k: options.pop(k) for k in ("limit", "address_limit", "is_exempt") if k in options},
    }
    connections = OpenConnections(
        log=LimitedLog(clock), time=asyncio.get_running_loop().time, **limits
    )
    listener = PlainListener(
        app,
        ListenAddress("127.0.0.1", port),
        connections,
        clock=clock,
        tunnels=passed_on,
        **{"max_header_bytes": 16_384, **options},
    )
    await listener.start()
    try:
        yield Plain(listener, connections, port)
    finally:
        await listener.stop(0)


async def read_body(receive: Any) -> bytes:
    """Read a body as an application does; `ConnectionResetError` if it is not complete."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


async def respond(send: Any, body: bytes = b"", status: int = 200, *headers: Any) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the method, the target and the body of a request."""
    body = await read_body(receive)
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    await respond(send, b"%b %b %b;" % (scope["method"].encode(), target, body))


def bodies(answer: bytes) -> list[bytes]:
    """Return the bodies of some responses, each with its length stated."""
    found = []
    while answer:
        head, _, rest = answer.partition(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.startswith(b"content-length")
        )
        found.append(rest[:length])
        answer = rest[length:]
    return found
