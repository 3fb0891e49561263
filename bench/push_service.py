"""Providers that accept everything at once: what is measured is who sends to them.

`python -m bench.push_service PORT PLAIN_PORT MAIL_PORT FOLDER` makes its certificates in the
folder. The first port has TLS; the third speaks as much of SMTP as a client needs.
"""

import asyncio
import datetime as dt
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from clarion.http.certificates import DevelopmentTls
from clarion.http.listeners import HttpListener
from clarion.settings.types import ListenAddress

MESSAGE = b'{"sid":"SM1","status":"queued"}'
TOKEN = b'{"access_token":"token","expires_in":3600,"token_type":"Bearer"}'
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def accept(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer 200; to a request for an access token, with one; to `/hang`, never."""
    await receive()
    if scope["path"] == "/hang":
        await asyncio.Event().wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"apns-id", b"1")]})
    body = TOKEN if scope["path"] == "/token" else b""
    if scope["path"].startswith("/2010-04-01/"):
        body = MESSAGE
    await send({"type": "http.response.body", "body": body})


class Mail(asyncio.Protocol):
    """Answers each command, and takes what follows DATA up to the dot."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._is_body = False
        self._rest = b""
        transport.write(b"220 bench\r\n")

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n.\r\n" if self._is_body else b"\r\n")) >= 0:
            line, self._rest = self._rest[:end], self._rest[end + (5 if self._is_body else 2) :]
            self._is_body = not self._is_body and line[:4].upper() == b"DATA"
            self._transport.write(b"354 go on\r\n" if self._is_body else b"250 ok\r\n")


async def serve(port: int, plain_port: int, mail_port: int, folder: Path) -> None:
    """Serve until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tls = DevelopmentTls(folder)
    tls.ensure(dt.datetime.now(dt.UTC))
    listener = HttpListener(
        accept,
        ListenAddress("127.0.0.1", port),
        max_header_bytes=16_384,
        certificate=tls.certificate,
        key=tls.key,
    )
    plain = HttpListener(accept, ListenAddress("127.0.0.1", plain_port), max_header_bytes=16_384)
    loop = asyncio.get_running_loop()
    mail = await loop.create_server(Mail, "127.0.0.1", mail_port)
    await plain.start(on_failed=sys.exit)
    await listener.start(on_failed=sys.exit)
    await stopping.wait()
    mail.close()
    await asyncio.gather(listener.stop(1.0), plain.stop(1.0))


if __name__ == "__main__":
    tls_port, plain_port, mail_port = map(int, sys.argv[1:4])
    uvloop.run(serve(tls_port, plain_port, mail_port, Path(sys.argv[4])))
