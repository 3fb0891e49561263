"""A TCP proxy between a client and a server that can be cut, or stop forwarding silently."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards bytes both ways, until it does not."""

    def __init__(
        self, url: str, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self._parts = urlsplit(url)
        self._host = host
        self._tls = tls
        self._requests_flow = asyncio.Event()
        self._answers_flow = asyncio.Event()
        self._resume()
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Future[tuple[None, None]]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @classmethod
    @asynccontextmanager
    async def to(
        cls, url: str, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[Self]:
        """Listen at an address of this machine as long as the context lasts.

        With `tls` it ends TLS, as a server of a provider does.
        """
        proxy = cls(url, host, tls)
        await proxy.restore()
        try:
            yield proxy
        finally:
            await proxy.cut()

    @property
    def url(self) -> str:
        """The address of the server, by way of the proxy."""
        user = f"{self._parts.username}@" if self._parts.username else ""
        return urlunsplit(self._parts._replace(netloc=f"{user}{self._host}:{self._port}"))

    async def restore(self) -> None:
        self._resume()
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, ssl=self._tls
            )
            self._port = self._server.sockets[0].getsockname()[1]

    def freeze(self) -> None:
        """Forward nothing any more, but keep the connections open."""
        self._requests_flow.clear()
        self._answers_flow.clear()

    def freeze_answers(self) -> None:
        """Forward what the client sends, and nothing of what the server answers."""
        self._answers_flow.clear()

    async def cut(self) -> None:
        """End all connections and refuse new ones."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._resume()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._parts.hostname, self._parts.port
        far_reader, far_writer = await asyncio.open_connection(host, port)
        ends = {writer, far_writer}
        self._writers |= ends
        pumps = asyncio.gather(
            self._pump(reader, far_writer, self._requests_flow),
            self._pump(far_reader, writer, self._answers_flow),
        )
        self._connections.add(pumps)
        await pumps
        self._connections.discard(pumps)
        self._writers -= ends

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await flows.wait()
                writer.write(data)
        writer.close()

    def _resume(self) -> None:
        self._requests_flow.set()
        self._answers_flow.set()
