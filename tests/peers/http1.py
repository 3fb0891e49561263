"""A server that speaks HTTP/1.1, and can answer badly in every way; as `http2`, which it is for."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tests.peers.http2 import SLOW_S, Fault, Reply, Request
from tests.peers.twilio import reset

FLOOD = b"10000\r\n" + b"x" * 65_536 + b"\r\n"


class Http1Peer:
    """Gives each request to a handler, unless a fault befalls it."""

    def __init__(self, handler: Callable[[Request], Reply]) -> None:
        self.requests: list[Request] = []
        self.always: Fault | Reply | None = None
        self.port = 0
        self._released: asyncio.Event | None = None
        self._held: set[asyncio.StreamReader] = set()
        self._handler = handler
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Take requests, and answer none of them before `release`."""
        self._released = asyncio.Event()

    def release(self) -> None:
        """Answer what was held, and what comes from now on."""
        if self._released is not None:
            self._released.set()
            self._released = None

    def count_held(self) -> int:
        """Return how many requests are held by clients that still wait for the answer."""
        return sum(not reader.at_eof() for reader in self._held)

    @asynccontextmanager
    async def serving(
        self, tls: ssl.SSLContext | None, port: int = 0
    ) -> AsyncIterator["Http1Peer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                while await self._answer(number, reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _answer(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; False if the connection ends."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        if self.always is Fault.RESET_MID_BODY:
            reset(writer)
            return False
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = head[0].split()
        request = Request(method=method, path=path, headers=headers, body=body, connection=number)
        self.requests.append(request)
        if self._released is not None:
            await self._hold(reader, self._released)
        if isinstance(self.always, Fault):
            await self._fail(self.always, self._handler(request), writer)
            return False
        writer.write(encode(self.always or self._handler(request)))
        await writer.drain()
        return True

    async def _hold(self, reader: asyncio.StreamReader, released: asyncio.Event) -> None:
        self._held.add(reader)
        try:
            await released.wait()
        finally:
            self._held.discard(reader)

    async def _fail(  # noqa: C901 - a case a fault
        self, fault: Fault, reply: Reply, writer: asyncio.StreamWriter
    ) -> None:
        answer = encode(reply)
        match fault:
            case Fault.SILENCE:
                await asyncio.sleep(3600)
            case Fault.HALF_REPLY:
                writer.write(answer[: answer.index(b"\r\n\r\n") - 3])
                await writer.drain()
            case Fault.SLOW:
                for byte in answer:
                    if writer.is_closing():
                        return
                    writer.write(bytes([byte]))
                    await asyncio.sleep(SLOW_S)
            case Fault.GARBAGE:
                writer.write(b"\x00\xff220 mail.example.com ESMTP\r\n\r\n" * 100)
                await writer.drain()
            case Fault.ENDLESS:
                status = f"HTTP/1.1 {reply.status} X\r\ntransfer-encoding: chunked\r\n\r\n"
                writer.write(status.encode())
                while not writer.is_closing():
                    writer.write(FLOOD)
                    await writer.drain()
                    await asyncio.sleep(0.001)
            case _:
                reset(writer)


def encode(reply: Reply) -> bytes:
    fields = {"content-length": str(len(reply.body)), **reply.headers}
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    return f"HTTP/1.1 {reply.status} X\r\n{''.join(lines)}\r\n".encode() + reply.body
