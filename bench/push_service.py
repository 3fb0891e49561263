"""A push service that accepts everything at once, over TLS: what is measured is who sends to it.

`python -m bench.push_service PORT FOLDER` makes its certificates in the folder.
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
from clarion.setting_types import Address

TOKEN = b'{"access_token":"token","expires_in":3600,"token_type":"Bearer"}'
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def accept(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer 200; to a request for an access token, with one."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"apns-id", b"1")]})
    body = TOKEN if scope["path"] == "/token" else b""
    await send({"type": "http.response.body", "body": body})


async def serve(port: int, folder: Path) -> None:
    """Serve until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tls = DevelopmentTls(folder)
    tls.ensure(dt.datetime.now(dt.UTC))
    listener = HttpListener(
        accept,
        Address("127.0.0.1", port),
        max_header_bytes=16_384,
        certificate=tls.certificate,
        key=tls.key,
    )
    await listener.start(on_failed=sys.exit)
    await stopping.wait()
    await listener.stop(1.0)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
