"""A push service on loopback: an HTTP server that records what it gets, and fails as it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Fault(Enum):
    """What the service does instead of answering."""

    HANG = "reads the request and never answers"
    RESET_MID_BODY = "reads a part of the body and resets the connection"
    HALF_REPLY = "ends the connection in the middle of its answer"
    CLOSE_AFTER_ACCEPTING = "reads the request and closes without an answer"
    SLOW = "answers one byte a second"


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class PushService:
    """Answers with `status`, `headers` and `text`, or fails."""

    port: int = 0
    scheme: str = "http"
    status: int = 201
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    fault: Fault | None = None
    received: list[Received] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self.serve(reader, writer)))

    def url(self, path: str = "/push/secret-capability") -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *lines = head.strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        if self.fault is Fault.RESET_MID_BODY:
            await reader.read(10)
            writer.transport.abort()
            return
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append(Received(first.split()[1], headers, body))
        answer = self._make_answer()
        match self.fault:
            case Fault.HANG:
                await asyncio.sleep(3600)
            case Fault.CLOSE_AFTER_ACCEPTING:
                writer.close()
            case Fault.HALF_REPLY:
                writer.write(answer[: len(answer) // 2])
                writer.close()
            case Fault.SLOW:
                for byte in answer:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(1)
            case _:
                writer.write(answer)
                await writer.drain()

    def _make_answer(self) -> bytes:
        body = self.text.encode()
        lines = [f"HTTP/1.1 {self.status} Any", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[PushService]:
    service = PushService(scheme="https" if tls else "http")
    server = await asyncio.start_server(service.accept, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        for task in service.tasks:
            task.cancel()
        await asyncio.gather(*service.tasks, return_exceptions=True)
