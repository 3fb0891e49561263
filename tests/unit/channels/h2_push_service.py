"""A push service that speaks HTTP/2 over TLS, as those of the browsers do."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamEnded

from clarion.http.certificates import DevelopmentTls


@dataclass
class H2PushService:
    """Answers 201, or ends the connection by GOAWAY after it has taken the message."""

    ca_path: Path
    port: int = 0
    goes_away: bool = False
    connections: int = 0
    # By connection and stream: requests come mixed.
    received: dict[tuple[H2Connection, int], bytes] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def bodies(self) -> list[bytes]:
        return list(self.received.values())

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/push/secret-capability"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = H2Connection(H2Configuration(client_side=False))
        protocol.initiate_connection()
        writer.write(protocol.data_to_send())
        while data := await reader.read(65_536):
            ends = [self._handle(protocol, each) for each in protocol.receive_data(data)]
            writer.write(protocol.data_to_send())
            await writer.drain()
            if any(ends):
                break
        writer.close()

    def _handle(self, protocol: H2Connection, event: Event) -> bool:
        """Answer an event; return whether the connection ends."""
        match event:
            case RequestReceived():
                self.received[protocol, event.stream_id] = b""
            case DataReceived():
                self.received[protocol, event.stream_id] += event.data
            case StreamEnded() if self.goes_away:
                protocol.close_connection(last_stream_id=event.stream_id)
                return True
            case StreamEnded():
                protocol.send_headers(event.stream_id, [(":status", "201")], end_stream=True)
            case _:
                pass
        return False


@asynccontextmanager
async def serving_h2(folder: Path) -> AsyncIterator[H2PushService]:
    tls = DevelopmentTls(folder)
    tls.ensure(dt.datetime.now(dt.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["h2"])
    service = H2PushService(tls.ca)
    server = await asyncio.start_server(service.accept, "127.0.0.1", 0, ssl=context)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        for task in service.tasks:
            task.cancel()
        await asyncio.gather(*service.tasks, return_exceptions=True)
