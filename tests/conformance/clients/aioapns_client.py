"""aioapns pointed at our server: TLS with the development CA, one connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aioapns import APNs, NotificationRequest
from aioapns.common import NotificationResult
from aioapns.connection import APNsTLSClientProtocol

from tests.conformance.device import PATIENCE_S
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer

MESSAGE = {"aps": {"alert": "Grüße 🎺"}, "order": 7}


class Client:
    """aioapns with one connection to our server; `identity` replaces what it signs with."""

    def __init__(self, server: ConformanceServer, provider: Provider, **identity: str) -> None:
        known = {
            "key": provider.key_pem,
            "key_id": provider.key_id,
            "team_id": provider.team_id,
            "topic": provider.bundle_id,
        }
        options: dict[str, Any] = {
            **(known | identity),
            "ssl_context": ssl.create_default_context(cafile=server.ca_path),
            "max_connections": 1,
            "err_func": ignore,
        }
        self.apns = APNs(**options)
        where = {"APNS_SERVER": "localhost", "APNS_PORT": server.tls_port}
        self.apns.pool.protocol_class = type("Local", (_Protocol,), where)

    async def push(self, token: str, **changes: Any) -> NotificationResult:
        message = changes.pop("message", MESSAGE)
        return await self.apns.send_notification(NotificationRequest(token, message, **changes))

    async def refusal(self, token: str, **changes: Any) -> tuple[str, str | None]:
        result = await self.push(token, **changes)
        return result.status, result.description

    async def close(self) -> None:
        connections = list(self.apns.pool.connections)
        self.apns.pool.close()
        for connection in connections:
            assert isinstance(connection, _Protocol)
            await asyncio.wait_for(connection.lost.wait(), PATIENCE_S)


class _Protocol(APNsTLSClientProtocol):
    """Says when its socket is closed, so that no test leaves one open."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


async def ignore(_request: NotificationRequest, _result: NotificationResult) -> None:
    """A refusal is a result here, not something to log."""


@asynccontextmanager
async def calling(
    server: ConformanceServer, provider: Provider, **identity: str
) -> AsyncIterator[Client]:
    made = Client(server, provider, **identity)
    try:
        yield made
    finally:
        await made.close()
