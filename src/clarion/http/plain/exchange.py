"""One request and its response, between a connection and the application."""

from __future__ import annotations

import asyncio
from typing import Protocol

from clarion.http.asgi import Headers, Message, Scope
from clarion.http.plain.wire import CONTINUE, LAST_CHUNK, WITHOUT_BODY, write_chunk

# More of a body than this is not read before the application takes it.
UNREAD_BYTES = 65_536
_CLOSE = b"connection: close\r\n"
_SAYS_CLOSE = (b"connection", b"close")
_KEEP_ALIVE = b"connection: keep-alive\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"


class Link(Protocol):
    """The connection, as its exchanges see it."""

    is_open: bool  # the client is there, and has not ended its side
    is_ending: bool  # no request follows this one

    @property
    def is_full(self) -> bool:
        """Whether the client has to read before more is written."""

    def write(self, data: bytes) -> None:
        """Write, unless the connection is lost."""

    def write_head(self, status: int, headers: Headers, more: list[bytes]) -> bytes:
        """Return the head of a response."""

    async def wait_writable(self) -> None:
        """Return when the client has read most of what was written, or is gone."""

    def read_on(self) -> None:
        """Continue to read from the client."""


class Exchange:
    """The `receive` of ASGI for one request, and called, the `send`."""

    __slots__ = (
        "_is_chunked",
        "_is_given",
        "_left",
        "_link",
        "_parts",
        "_start",
        "_waiter",
        "awaits_continue",
        "is_answered",
        "is_begun",
        "is_broken",
        "is_received",
        "keeps_alive",
        "scope",
        "unread",
    )

    def __init__(
        self, link: Link, scope: Scope, *, keeps_alive: bool, awaits_continue: bool
    ) -> None:
        self.scope = scope
        # Whether a request may follow on the connection; known for certain with the head.
        self.keeps_alive = keeps_alive
        self.awaits_continue = awaits_continue
        self.is_received = False  # all of the body has arrived
        self.is_broken = False  # the rest of the body will not arrive
        self.is_begun = False  # the head of the response is written
        self.is_answered = False  # all of the response is written
        self.unread = 0
        self._link = link
        self._parts: list[bytes] = []
        self._is_given = False  # the application has all of the body
        self._waiter: asyncio.Future[None] | None = None
        self._start: Message = {}
        self._is_chunked = False
        self._left = 0  # of a response whose length is stated

    # Of the connection.

    def add(self, part: bytes) -> None:
        """Take a part of the body; if the response is written already, nobody reads it."""
        self.awaits_continue = False
        if not self.is_answered:
            self._parts.append(part)
            self.unread += len(part)
            self.wake()

    def end_body(self) -> None:
        self.is_received = True
        self.awaits_continue = False
        self.wake()

    def break_off(self) -> None:
        """Note that the rest of the body cannot be read."""
        self.is_broken = True
        self.keeps_alive = False
        self.wake()

    def wake(self) -> None:
        """Let the application look again: something has arrived, or the client is gone."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Of the application.

    async def receive(self) -> Message:
        """Return what has arrived of the body, and later that the client has disconnected."""
        while not self._parts and (self._is_given or not self.is_received):
            if self.is_broken or not self._link.is_open:
                return {"type": "http.disconnect"}
            if self.awaits_continue and not self.is_begun:
                self.awaits_continue = False
                self._link.write(CONTINUE)
            await self._wait()
        parts, self._parts = self._parts, []
        self.unread = 0
        self._is_given = self.is_received
        if not self.is_received:
            self._link.read_on()
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return {"type": "http.request", "body": body, "more_body": not self.is_received}

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def __call__(self, message: Message) -> None:
        """Write a part of the response, and wait while the client does not read."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        if not self.is_begun:
            start = self._start
            self._begin(start["status"], start["headers"], body, is_last=is_last)
        else:
            self._continue(body, is_last=is_last)
        self.is_answered = is_last
        await self._link.wait_writable()

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Write a whole response, and wait until the client has read most of it."""
        self._begin(status, headers, body, is_last=True)
        self.is_answered = True
        if self._link.is_full:
            await self._link.wait_writable()

    def _begin(self, status: int, headers: Headers, body: bytes, *, is_last: bool) -> None:
        length, more = None, list[bytes]()
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"connection":
                self.keeps_alive = False
        if length is None and status not in WITHOUT_BODY:
            more += self._measure(len(body), is_last=is_last)
        self._choose_connection(headers, more)
        self._left = 0 if length is None else int(length)
        head = self._link.write_head(status, headers, more)
        self.is_begun = True
        if self.scope["method"] == "HEAD" or status in WITHOUT_BODY:
            self._left = 0
            self._is_chunked = False
            self._link.write(head)
        else:
            self._link.write(head + self._cut_to_length(body, is_last=is_last))

    def _measure(self, size: int, *, is_last: bool) -> list[bytes]:
        """Return the header from which the client knows where the body ends."""
        if is_last:
            return [b"content-length: %d\r\n" % size]
        if self.scope["http_version"] == "1":  # HTTP/1.0: it ends with the connection
            self.keeps_alive = False
            return []
        self._is_chunked = True
        return [_CHUNKED]

    def _choose_connection(self, headers: Headers, more: list[bytes]) -> None:
        # A client that waits for `100 Continue` may or may not send the body now.
        if self._link.is_ending or self.awaits_continue:
            self.keeps_alive = False
        if not self.keeps_alive and _SAYS_CLOSE not in headers:
            more.append(_CLOSE)
        if self.keeps_alive and self.scope["http_version"] == "1":
            more.append(_KEEP_ALIVE)

    def _continue(self, body: bytes, *, is_last: bool) -> None:
        if self.scope["method"] != "HEAD":
            self._link.write(self._cut_to_length(body, is_last=is_last))

    def _cut_to_length(self, body: bytes, *, is_last: bool) -> bytes:
        if self._is_chunked:
            part = write_chunk(body) if body else b""
            return part + LAST_CHUNK if is_last else part
        if self._left:
            self._left -= len(body)
            # Too little or too much: what follows would be read as part of it.
            if self._left < 0 or (is_last and self._left):
                self.keeps_alive = False
        return body
