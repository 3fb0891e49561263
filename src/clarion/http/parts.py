"""A response of the framework that is sent as it is made. It has no length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from clarion.http.sending import STALLED_S


@dataclass(frozen=True, slots=True)
class Parts:
    """An ASGI application that sends parts of JSON until they end.

    If one cannot be made, the response is cut off: the client sees that it is not complete. A
    client that reads nothing for too long is disconnected.
    """

    parts: AsyncGenerator[bytes, None]
    stalled_s: float = STALLED_S

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        async with aclosing(self.parts) as parts:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for part in parts:
                async with asyncio.timeout(self.stalled_s):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
