"""Sends a response: a large one in parts, so that a client that does not read costs little memory.

Granian buffers four parts of a response and hyper a fifth; then `send` waits until one is written.
A body that is handed over at once is copied and kept until it is written, without a notice when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from clarion.errors import Overloaded
from clarion.http.asgi import Headers, Message, Request, Response, Send
from clarion.http.budgets import MemoryBudget

# The size of an HTTP/2 frame. What is no larger is sent at once.
PART_BYTES = 16_384
# The last parts are small: when the last one is taken over, no more than these are buffered.
TAIL_PARTS = 6
TAIL_BYTES = 64
# A client must read a large response within 30 s and a second for each 32 KiB.
STALLED_S = 30.0
RATE_BYTES = 32_768


Respond = Callable[[int, Headers, bytes], Awaitable[None]]


class ResponseSender:
    """Sends a response with the headers that every response has, and records its status."""

    is_stream = False  # its start is sent at once, and its parts as they come
    status = 0
    is_begun = False  # part of the response is sent, so that no other can be
    is_stalled = False  # the client did not read it in time: close its connection
    refusal: Overloaded | None = None  # to be answered instead of the response
    stalled_s = STALLED_S
    _start: Message

    def __init__(self, request: Request, send: Send, extra: Headers, budget: MemoryBudget) -> None:
        self._request = request
        self._send = send
        # A listener of our own takes a whole response.
        self._respond: Respond | None = getattr(send, "respond", None)
        self._extra = extra
        self._budget = budget

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self._extra]
            self._start = message
            if self.is_stream:
                await self._begin()
        elif self.is_begun:
            await self._send(message)
        elif message.get("more_body"):
            await self._begin()
            await self._send(message)
        else:
            await self._send_whole(_end_line(self._start, message["body"]))

    async def respond(self, response: Response) -> None:
        """Send a complete response."""
        status, body, headers = response
        self.status = status
        self._start = {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, *self._extra],
        }
        await self._send_whole(body)

    async def _begin(self) -> None:
        if self._request.is_passed_over:
            await self._request.discard()
        self.is_begun = True
        await self._send(self._start)

    async def _send_whole(self, body: bytes) -> None:
        if self._is_sent_at_once(body):
            await self._send_at_once(body)
        else:
            await self._send_in_parts(body)

    async def _send_at_once(self, body: bytes) -> None:
        if self._respond is not None:
            self.is_begun = True
            await self._respond(self.status, self._start["headers"], body)
        else:
            await self._begin()
            await self._send({"type": "http.response.body", "body": body})

    def _is_sent_at_once(self, body: bytes) -> bool:
        # The listener drops the body of a response to HEAD.
        return len(body) <= PART_BYTES or self._request.scope["method"] == "HEAD"

    async def _send_in_parts(self, body: bytes) -> None:
        size, who = len(body), self._request.who
        try:
            self._budget.take(who, size)
        except Overloaded as error:
            # Not raised: the framework, which calls this, would take it for a fault of its own.
            self.refusal = error
            return
        try:
            _announce(self._start, size)
            async with asyncio.timeout(self.stalled_s + size / RATE_BYTES):
                if self._respond is not None:
                    await self._send_at_once(body)
                else:
                    await self._send_cut(body)
        except TimeoutError:
            self.is_stalled = True
        finally:
            self._budget.release(who, size)

    async def _send_cut(self, body: bytes) -> None:
        await self._begin()
        for part, is_last in _cut(body):
            message = {"type": "http.response.body", "body": part, "more_body": not is_last}
            await self._send(message)


def _end_line(start: Message, body: bytes) -> bytes:
    """End the JSON of the framework with a line feed, as `respond_json` does."""
    headers: Headers = start["headers"]
    if not body or not dict(headers).get(b"content-type", b"").endswith(b"json"):
        return body
    line = body + b"\n"
    length = (b"content-length", b"%d" % len(line))
    start["headers"] = [length if name == length[0] else (name, value) for name, value in headers]
    return line


def _announce(start: Message, size: int) -> None:
    """State the length of the body: HTTP/1.1 would otherwise send it without one."""
    headers: list[tuple[bytes, bytes]] = start["headers"]
    if not any(name == b"content-length" for name, _ in headers):
        headers.append((b"content-length", b"%d" % size))


def _cut(body: bytes) -> Iterator[tuple[bytes, bool]]:
    view: Any = memoryview(body)
    tail = len(body) - TAIL_PARTS * TAIL_BYTES
    starts = [*range(0, tail, PART_BYTES), *range(tail, len(body), TAIL_BYTES)]
    for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
        yield bytes(view[start:end]), end == len(body)
