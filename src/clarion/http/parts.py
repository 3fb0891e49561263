"""A response of the framework that is sent as it is made. It has no length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import Any

from clarion.errors import ClarionError
from clarion.http.sending import STALLED_S


@dataclass(frozen=True, slots=True)
class Parts:
    """An ASGI application that sends parts of JSON until they end or the client disconnects.

    If one cannot be made, the response is cut off: the client sees that it is not complete. A
    client that reads nothing for too long is disconnected. Nothing is made before `permit` is
    entered, which may refuse the request.
    """

    parts: AsyncGenerator[bytes, None]
    stalled_s: float = STALLED_S
    permit: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        async with self.permit:
            sending = asyncio.create_task(self._send(send))
            waiting = asyncio.create_task(_wait_disconnected(receive))
            try:
                await asyncio.wait((sending, waiting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (sending, waiting):
                    each.cancel()
                await asyncio.wait((sending, waiting))
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        async with aclosing(self.parts) as parts:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for part in parts:
                async with asyncio.timeout(self.stalled_s):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_disconnected(receive: Any) -> None:
    while True:
        try:
            message = await receive()
        except ClarionError:
            continue  # of a body that nobody asked for
        if message["type"] == "http.disconnect":
            return
