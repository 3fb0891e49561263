"""A request and its answer as the hot paths see them: plain ASGI, nothing in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from clarion.errors import BodyTooLarge

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from clarion.access.model import Caller

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

_DISCARD_LIMIT_S = 5.0
STALLED_S = 60.0
Headers = list[tuple[bytes, bytes]]


class Response(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Streamed(NamedTuple):
    """An answer in parts, until they end or the caller leaves; then `close` is called."""

    parts: AsyncGenerator[bytes, None]
    close: Callable[[], None]
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stalled_s: float = STALLED_S  # who takes nothing for so long is broken off


class Request:
    """A request with its id and, behind the door that asks for one, its caller."""

    __slots__ = ("_limit", "_receive", "caller", "id", "is_read", "is_whole", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, request_id: str, caller: Caller | None, limit: int
    ) -> None:
        self.scope = scope
        self.id = request_id
        self.caller = caller
        self._receive = receive
        self._limit = limit
        self.is_whole = False  # `body` has returned it
        self.is_read = False  # its end was seen

    async def body(self, limit: int | None = None) -> bytes:
        """Read the whole body; `BodyTooLarge` as soon as that is certain.

        When as much is here as was announced, that is all: the end, which the listener gives as a
        part of its own, is not waited for. Each part costs a switch of threads and back.
        """
        limit = self._limit if limit is None else limit
        announced = announced_length(self.scope)
        body = await self._next()
        if not self.is_read and len(body) != announced:
            body = await self._gather(body, announced, limit)
        if len(body) > limit:
            raise BodyTooLarge
        self.is_whole = True
        return body

    async def _gather(self, body: bytes, announced: int | None, limit: int) -> bytes:
        parts = bytearray(body)
        while not self.is_read and len(parts) != announced and len(parts) <= limit:
            parts += await self._next()
        return bytes(parts)

    async def discard(self) -> None:
        """Read and forget what is left of the body, as much as a body may have.

        An answer that overtakes its request is followed by a reset of the stream, and clients
        such as curl 7.88 then lose the answer. Who sends too slowly is not waited for.
        """
        taken = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_LIMIT_S):
                while not self.is_read and taken <= self._limit:
                    taken += len(await self._next())

    async def wait_left(self) -> None:
        """Return when the caller has gone away."""
        while (await self._receive())["type"] != "http.disconnect":
            self.is_read = True

    async def _next(self) -> bytes:
        message = await self._receive()
        self.is_read = not message.get("more_body")
        part: bytes = message.get("body", b"")
        return part


Endpoint = Callable[[Request], Awaitable["Response | Streamed"]]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def announced_length(scope: Scope) -> int | None:
    """Return how long the body is by its header, if that says a number."""
    text = header(scope, b"content-length")
    return int(text) if text and text.isascii() and text.isdecimal() else None


async def respond(send: Send, response: Response, extra: Headers) -> None:
    """Send a whole answer."""
    await send(
        {
            "type": "http.response.start",
            "status": response.status,
            "headers": [*response.headers, *extra],
        }
    )
    await send({"type": "http.response.body", "body": response.body})


async def stream(send: Send, request: Request, answer: Streamed) -> None:
    """Send the parts of an answer as they come, as long as there is somebody to read them."""
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [*answer.headers]})
        async with asyncio.TaskGroup() as tasks:
            pumping = tasks.create_task(_pump(send, answer))
            leaving = tasks.create_task(request.wait_left())
            pumping.add_done_callback(lambda _: leaving.cancel())
            leaving.add_done_callback(lambda _: pumping.cancel())
    finally:
        answer.close()


async def _pump(send: Send, answer: Streamed) -> None:
    # Who is broken off can come back and resume.
    with contextlib.suppress(TimeoutError):
        async with contextlib.aclosing(answer.parts) as parts:
            async for part in parts:
                async with asyncio.timeout(answer.stalled_s):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
