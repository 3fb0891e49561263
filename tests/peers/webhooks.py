"""A receiver of webhooks that verifies every signature with the package of the specification."""

import asyncio
import contextlib
import json
from typing import Any, Self

from standardwebhooks import Webhook

from tests.peers.twilio import Reply, encode, read_request


class WebhookReceiver:
    """The server. Use as a context; `bodies` are those of verified messages, with their ids."""

    def __init__(self) -> None:
        self.secret: str | None = None
        self.reply = Reply(204, b"")
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Exception] = []
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:  # a sender keeps its connections
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                _, headers, body = await read_request(reader)
                self.take(headers, body)
                writer.write(encode(self.reply))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """Verify a message, and keep it."""
        try:
            Webhook(self.secret or "").verify(body, headers)
        except Exception as error:  # noqa: BLE001 - the test looks at them
            self.faults.append(error)
        else:
            self.bodies.append((headers["webhook-id"], json.loads(body)))
            self.headers.append(headers)
