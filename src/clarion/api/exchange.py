"""A request and its answer as the hot paths see them: plain ASGI, nothing in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from clarion.errors import BodyTooLarge

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from clarion.model import Caller

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]


class Response(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Request:
    """A request with its id and, behind the door that asks for one, its caller."""

    __slots__ = ("_limit", "_receive", "caller", "id", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, request_id: str, caller: Caller | None, limit: int
    ) -> None:
        self.scope = scope
        self.id = request_id
        self.caller = caller
        self._receive = receive
        self._limit = limit

    async def body(self) -> bytes:
        """Read the whole body; `BodyTooLarge` as soon as that is certain."""
        message = await self._receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(body) > self._limit:
                raise BodyTooLarge
            return body
        parts = bytearray(body)
        while message.get("more_body"):
            message = await self._receive()
            parts += message.get("body", b"")
            if len(parts) > self._limit:
                raise BodyTooLarge
        return bytes(parts)


Endpoint = Callable[[Request], Awaitable[Response]]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


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
