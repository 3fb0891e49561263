"""Fast routes: plain ASGI functions answer them in front of the framework."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import parse_qs

from clarion.access.model import AdminCaller, AdminCredential, AppCaller, Caller
from clarion.errors import BodyTooLarge, MalformedBody, NotJson
from clarion.http.budgets import Receiving

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_DISCARD_LIMIT_S = 5.0
STALLED_S = 60.0
Headers = list[tuple[bytes, bytes]]


class Framework(Protocol):
    """An ASGI application that lists its routes, each with a `path` and its `methods`."""

    @property
    def routes(self) -> Sequence[Any]: ...

    async def __call__(self, scope: Any, receive: Any, send: Any, /) -> None: ...


class Link(Protocol):
    """The connection of a request."""

    @property
    def key(self) -> object:
        """Return what no other connection has. It is small, and may be kept after the end."""

    @property
    def skips_bodies(self) -> bool:
        """Whether it skips by itself what nobody reads of a body."""


class Response(NamedTuple):
    """A complete response."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


JSON = (b"content-type", b"application/json")


def respond_json(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> Response:
    """Return a response with JSON; on a terminal the prompt follows on a line of its own."""
    return Response(status, body + b"\n", (JSON, *headers))


class Streamed(NamedTuple):
    """A response in parts, until they end or the client disconnects; then `close` is called."""

    parts: AsyncGenerator[bytes, None]
    close: Callable[[], None]
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stalled_s: float = STALLED_S  # a client that reads nothing for this time is disconnected


class Request:
    """A request with its id, under `/v1/` its caller, and the largest size of its body.

    `headers` has each header by its lower-case name, the first if one is repeated. `connection` is
    the same for all requests of a connection, and for no others.
    """

    is_trusted = False  # may see what is not for strangers: metrics, versions, host names
    is_admitted = False  # its caller is known, and it is below its limits
    is_asked = False  # `body` was called
    is_whole = False  # it has returned all of the body
    is_read = False  # the end of the body was received
    credential: AdminCredential | None = None  # if an administrator calls

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        request_id: str,
        caller: Caller | None,
        limit: int,
        receiving: Receiving | None = None,
        connection: Link | None = None,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.id = request_id
        self.caller = caller
        self.limit = limit
        self.receiving = Receiving() if receiving is None else receiving
        self.connection = connection
        self.headers = index_headers(scope.get("headers", [])) if headers is None else headers

    @property
    def who(self) -> str:
        """What the request is counted against: the key, the user, or else the address."""
        return identity_of(self.caller) if self.caller else str(self.scope["client"][0])

    @property
    def connection_key(self) -> object:
        """What all requests of a connection have in common, and no others."""
        return None if self.connection is None else self.connection.key

    def header(self, name: bytes) -> str | None:
        """Return the first header with this lower-case name, or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def announced_length(self) -> int | None:
        """The length of the body by its header, or None if that is not a number."""
        given = self.headers.get(b"content-length")
        return int(given) if given and given.isdigit() else None

    async def json(self) -> bytes:
        """Read the whole body; `NotJson` if it is not sent as JSON."""
        body = await self.body()
        if body:
            _require_json(self.headers)
        return body

    async def body(self, limit: int | None = None) -> bytes:
        """Read the whole body; `BodyTooLarge` as soon as that is certain, `BodyTimeout` if it is
        not here in time.

        As many bytes as the header announces are the whole body: the end, which the listener
        sends as an empty part, is not waited for. Each part costs a switch of threads and back.
        """
        self.is_asked = True
        limit = self.limit if limit is None else limit
        receiving, announced = self.receiving, self.announced_length
        task = receiving.begin()
        try:
            body = self._take(await self.receive())
            if not self.is_read and len(body) != announced:
                body = await self._gather(body, announced, limit)
        except asyncio.CancelledError:
            receiving.explain(task)
            raise
        finally:
            receiving.end(task)
        if len(body) > limit:
            raise BodyTooLarge
        self.is_whole = True
        return body

    async def _gather(self, body: bytes, announced: int | None, limit: int) -> bytes:
        parts, budget, who = bytearray(), self.receiving.budget, self.who
        try:
            while True:
                budget.take(who, len(body))
                parts += body
                if self.is_read or len(parts) == announced or len(parts) > limit:
                    return bytes(parts)
                body = self._take(await self.receive())
        finally:
            budget.release(who, len(parts))

    @property
    def is_passed_over(self) -> bool:
        """Whether the request has a body that was never read."""
        if self.is_asked or self.is_read:
            return False
        return bool(self.announced_length) or b"transfer-encoding" in self.headers

    async def discard(self) -> None:
        """Read and drop the rest of the body, up to the largest size of a body.

        A response that is sent before the request has ended is followed by a reset of the stream,
        and clients such as curl 7.88 then lose the response; with HTTP/1.1 the connection is closed
        under the next request of its client. A slow client is not waited for. A listener of our
        own needs none of it.
        """
        if self.connection is not None and self.connection.skips_bodies:
            return
        taken = 0
        with contextlib.suppress(TimeoutError, MalformedBody):
            async with asyncio.timeout(_DISCARD_LIMIT_S):
                while not self.is_read and taken <= self.limit:
                    taken += len(self._take(await self.receive()))

    async def wait_disconnected(self) -> None:
        """Return when the client has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            self.is_read = True

    def _take(self, message: Message) -> bytes:
        """Return the part of the body in a message, and note whether it is the last."""
        if message["type"] == "http.disconnect":
            # What came so far is not the body. Nobody reads the answer, but it must not be stored.
            self.is_read = True
            raise MalformedBody("The client disconnected before the end of the body.")
        self.is_read = not message.get("more_body")
        part: bytes = message.get("body", b"")
        return part


Endpoint = Callable[[Request], Awaitable[Response | Streamed]]


class Parameter(NamedTuple):
    """A parameter of a request, optional unless it is part of the path."""

    name: str
    place: Literal["path", "header", "query"]
    type: Any
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What OpenAPI says of a route; `body` and `response` are types that msgspec knows.

    With `has_tag` it sends an ETag, and answers 304 to a client that has the response already.
    """

    summary: str
    description: str
    tag: str
    status: int = 200
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    response: Any
    response_description: str
    media_type: str = "application/json"
    has_tag: bool = False


class FastRoute(NamedTuple):
    """A method and path, the function that answers them, and the documentation, if any.

    A path can have one parameter, as in `/v1/users/{user_id}/notifications`. A route that takes
    tickets can be called with `?ticket=` instead of a header.
    """

    method: str
    path: str
    endpoint: Endpoint
    operation: Operation | None = None
    takes_tickets: bool = False


def index_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers by name; of a repeated one, the first."""
    headers = dict(raw)
    return headers if len(headers) == len(raw) else dict(reversed(raw))


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header with this lower-case name, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def find_query(scope: Scope, name: str) -> str | None:
    """Return the last value of a parameter in the query, or None."""
    query = bytes(scope.get("query_string", b"")).decode("latin-1")
    given = parse_qs(query, keep_blank_values=True).get(name)
    return given[-1] if given else None


def identity_of(caller: Caller) -> str:
    """Return the name under which a caller is counted."""
    if isinstance(caller, AppCaller):
        return caller.key_id
    if isinstance(caller, AdminCaller):
        return f"administrator:{caller.administrator_id}"
    return f"{caller.app_id}:{caller.user_id}"


def is_json(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body is said to be JSON."""
    given = headers.get(b"content-type", b"")
    if given == b"application/json":
        return True
    kind = given.decode("latin-1").partition(";")[0].strip().lower()
    is_one = kind == "application/json" or kind.endswith("+json")
    return is_one and kind.startswith("application/")


def _require_json(headers: Mapping[bytes, bytes]) -> None:
    if headers.get(b"content-encoding", b"identity") != b"identity" or not is_json(headers):
        raise NotJson


async def stream(send: Send, request: Request, answer: Streamed) -> None:
    """Send the parts of a response as they come, until the client disconnects."""
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [*answer.headers]})
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_send_parts(send, answer))
            waiting = tasks.create_task(request.wait_disconnected())
            sending.add_done_callback(lambda _: waiting.cancel())
            waiting.add_done_callback(lambda _: sending.cancel())
    finally:
        answer.close()


async def _send_parts(send: Send, answer: Streamed) -> None:
    # A client that is disconnected can reconnect and resume.
    with contextlib.suppress(TimeoutError):
        async with contextlib.aclosing(answer.parts) as parts:
            async for part in parts:
                async with asyncio.timeout(answer.stalled_s):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
