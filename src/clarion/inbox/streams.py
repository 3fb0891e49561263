"""The live updates of a user's inbox as Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from clarion.access.model import require_user
from clarion.clock import Clock, to_monotonic
from clarion.errors import MethodNotAllowed, ServiceError
from clarion.http.asgi import (
    FastRoute,
    Operation,
    Parameter,
    Request,
    Streamed,
    find_query,
    header,
)
from clarion.inbox.feed import Feed, Update, encode, read_sequence
from clarion.inbox.live import EndReason, LiveClients
from clarion.inbox.port import Inboxes

PATH = "/v1/me/stream"
HEARTBEAT_S = 20.0
# How long a client that reads nothing may delay the end of its stream when the server stops.
STALL_LIMIT_S = 1.0
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # nginx and other proxies would buffer the events.
    (b"x-accel-buffering", b"no"),
)
HEARTBEAT = b": still here\n\n"
# Sent first: how long a browser should wait before it reconnects.
RETRY = b"retry: 2000\n\n"
_EXAMPLE = 'id: 7\nevent: state\ndata: {"type":"state","unread_count":3,"sequence":7}\n\n'
_FOLLOW = Operation(
    summary="Stream inbox updates",
    description="Stream the changes of the user's own inbox as Server-Sent Events.",
    tag="Inbox",
    parameters=(
        Parameter("Last-Event-ID", "header", int, "The id of the last event received."),
        Parameter("after", "query", int, "The same, for clients that cannot set the header."),
        Parameter("ticket", "query", str, "A ticket, in place of the `Authorization` header."),
    ),
    response=Annotated[str, Meta(examples=[_EXAMPLE])],
    response_description="Events until the stream ends: `state`, then one for each change.",
    media_type="text/event-stream",
)


@dataclass(frozen=True, slots=True)
class Streams:
    """Opens streams."""

    inboxes: Inboxes
    live: LiveClients
    clock: Clock
    heartbeat_s: float = HEARTBEAT_S
    stall_limit_s: float = STALL_LIMIT_S

    @property
    def routes(self) -> tuple[FastRoute, ...]:
        return (FastRoute("GET", PATH, self.open, _FOLLOW, takes_tickets=True),)

    async def open(self, request: Request) -> Streamed:
        """Answer with the state, and from then on with every change."""
        if request.scope["method"] == "HEAD":  # it would wait for a body that never ends
            raise MethodNotAllowed
        caller = require_user(request.caller)
        after = _resume_after(request)
        feed = Feed(self.inboxes, caller.app_id, caller.user_id)
        signal = _StreamSignal(self.stall_limit_s)
        client = self.live.open(caller.app_id, caller.user_id, wake=signal.wake, end=signal.end)
        try:
            first = await feed.begin(after)
        except BaseException:
            self.live.close(client)
            raise
        expires_at = to_monotonic(self.clock, caller.expires_at)
        parts = self._parts(feed, first, signal, expires_at)
        return Streamed(parts, lambda: self.live.close(client), HEADERS)

    async def _parts(
        self, feed: Feed, first: Update, signal: _StreamSignal, expires_at: int | None
    ) -> AsyncGenerator[bytes, None]:
        signal.task = asyncio.current_task()
        yield RETRY + encode_event(first)
        while not signal.is_ended:
            signal.clear()
            try:
                updates, is_all = await feed.more()
            except ServiceError:
                yield encode_end("store_unavailable")
                return
            if updates:
                yield b"".join(map(encode_event, updates))
            left_s = self._left_s(expires_at)
            if left_s <= 0:
                yield encode_end("token_expired")
                return
            if is_all and not await signal.wait(min(self.heartbeat_s, left_s)):
                yield HEARTBEAT
        yield encode_end(signal.reason)

    def _left_s(self, expires_at: int | None) -> float:
        if expires_at is None:
            return self.heartbeat_s
        return (expires_at - self.clock.monotonic()) / 1000


@dataclass(slots=True, eq=False)
class _StreamSignal:
    """Wakes a stream when the inbox has changed, and when the server ends it."""

    stall_limit_s: float
    reason: EndReason = EndReason.RESTARTING
    is_ended: bool = False
    task: asyncio.Task[object] | None = None
    event: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self.event.set()

    def clear(self) -> None:
        if not self.is_ended:
            self.event.clear()

    def end(self, reason: EndReason) -> None:
        """End the stream; if its client reads nothing, without the last event."""
        self.reason = reason
        self.is_ended = True
        self.event.set()
        if self.task is not None:
            asyncio.get_running_loop().call_later(self.stall_limit_s, self.task.cancel)

    async def wait(self, seconds: float) -> bool:
        """Return whether it was woken within the time."""
        try:
            async with asyncio.timeout(seconds):
                await self.event.wait()
        except TimeoutError:
            return False
        return True


def encode_event(update: Update) -> bytes:
    """Return an update as an event; JSON has no line breaks, so the data is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        update.sequence,
        update.type.value.encode(),
        encode(update),
    )


def encode_end(reason: str) -> bytes:
    """Return the last event of a stream; it has no id, so clients resume after the one before."""
    return b'event: end\ndata: {"type":"end","reason":"%s"}\n\n' % reason.encode()


def _resume_after(request: Request) -> int | None:
    """Return the sequence of the last update that the client has; browsers send the header."""
    last = header(request.scope, b"last-event-id")
    if last:
        return read_sequence(last, "Last-Event-ID")
    given = find_query(request.scope, "after")
    return None if given is None else read_sequence(given, "after")
