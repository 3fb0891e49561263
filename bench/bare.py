"""The least that can be started: Granian in an event loop, with a handler that says hello."""

import asyncio
import signal
import sys
from typing import Any

import uvloop
from granian.constants import Interfaces
from granian.server.embed import Server


async def say_hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def serve(port: int) -> None:
    """Serve until SIGTERM."""
    server = Server(
        say_hello,
        port=port,
        interface=Interfaces.ASGINL,
        websockets=False,
        log_enabled=False,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    await server.serve()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
