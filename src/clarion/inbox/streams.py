"""The live stream of a user's inbox, as Server-Sent Events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from clarion.access.model import require_user
from clarion.errors import MethodNotAllowed, ServiceError
from clarion.http.asgi import Streamed, header
from clarion.http.fast_routes import FastRoute, Operation, Parameter
from clarion.inbox.feed import Feed
from clarion.inbox.items import encode
from clarion.inbox.sequences import read_sequence

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from clarion.clock import Clock
    from clarion.http.asgi import Request
    from clarion.inbox.items import Update
    from clarion.inbox.live import Live
    from clarion.inbox.port import Inboxes

PATH = "/v1/me/stream"
HEARTBEAT_S = 20.0
# How long a reader that has stalled may keep a stopping server waiting.
FAREWELL_S = 1.0
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # nginx and its kin would hold the events back.
    (b"x-accel-buffering", b"no"),
)
HEARTBEAT = b": still here\n\n"
# Comes first: how long a browser should wait before it comes back.
RETRY = b"retry: 2000\n\n"
_FOLLOW = Operation(
    id="V1MeStreamFollow",
    summary="Stream inbox updates",
    description="Stream the changes of the user's own inbox as Server-Sent Events.",
    tag="Inbox",
    parameters=(
        Parameter("Last-Event-ID", "header", int, "The id of the last event received."),
        Parameter("after", "query", int, "The same, for clients that cannot set the header."),
    ),
    response=str,
    response_description="Events until the stream ends: `state`, then one for each change.",
    media_type="text/event-stream",
)


class Streams:
    """Opens streams."""

    def __init__(
        self,
        inboxes: Inboxes,
        live: Live,
        clock: Clock,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        farewell_s: float = FAREWELL_S,
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._farewell_s = farewell_s
        self._inboxes = inboxes
        self._live = live
        self._clock = clock
        self.routes = (FastRoute("GET", PATH, self.open, _FOLLOW),)

    async def open(self, request: Request) -> Streamed:
        """Answer with the state, and from then on with every change."""
        if request.scope["method"] == "HEAD":  # it would wait for a body that never ends
            raise MethodNotAllowed
        caller = require_user(request.caller)
        after = _resume_behind(request)
        feed = Feed(self._inboxes, caller.app_id, caller.user_id)
        bell = _Bell(self._farewell_s)
        screen = self._live.open(caller.app_id, caller.user_id, wake=bell.ring, end=bell.end)
        try:
            first = await feed.begin(after)
        except BaseException:
            self._live.close(screen)
            raise
        parts = self._parts(feed, first, bell, caller.expires_at)
        return Streamed(parts, lambda: self._live.close(screen), HEADERS)

    async def _parts(
        self, feed: Feed, first: Update, bell: _Bell, ends_at: int | None
    ) -> AsyncGenerator[bytes, None]:
        bell.task = asyncio.current_task()
        yield RETRY + encode_event(first)
        while not bell.is_ended:
            bell.clear()
            try:
                updates, is_all = await feed.more()
            except ServiceError:
                yield encode_end("store_unavailable")
                return
            if updates:
                yield b"".join(map(encode_event, updates))
            left_s = self._left_s(ends_at)
            if left_s <= 0:
                yield encode_end("token_expired")
                return
            if is_all and not await bell.wait(min(self._heartbeat_s, left_s)):
                yield HEARTBEAT
        yield encode_end("restarting")

    def _left_s(self, ends_at: int | None) -> float:
        return self._heartbeat_s if ends_at is None else (ends_at - self._clock.now()) / 1000


class _Bell:
    """Rung when there is news, and when the server stops."""

    __slots__ = ("_farewell_s", "_rung", "is_ended", "task")

    def __init__(self, farewell_s: float) -> None:
        self._farewell_s = farewell_s
        self.is_ended = False
        self.task: asyncio.Task[object] | None = None
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    def clear(self) -> None:
        if not self.is_ended:
            self._rung.clear()

    def end(self) -> None:
        """Let the stream end; if its reader takes nothing, without a last word."""
        self.is_ended = True
        self._rung.set()
        if self.task is not None:
            asyncio.get_running_loop().call_later(self._farewell_s, self.task.cancel)

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        return True


def encode_event(update: Update) -> bytes:
    """Return an update as an event; a JSON text has no line breaks, so its data is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        update.sequence,
        update.type.value.encode(),
        encode(update),
    )


def encode_end(reason: str) -> bytes:
    """Return the last event of a stream; it has no id, so that the one before is resumed from."""
    return b'event: end\ndata: {"type":"end","reason":"%s"}\n\n' % reason.encode()


def _resume_behind(request: Request) -> int | None:
    """Return what the client has seen; a browser that comes back says so in the header."""
    last = header(request.scope, b"last-event-id")
    if last:
        return read_sequence(last, "Last-Event-ID")
    query = bytes(request.scope.get("query_string", b"")).decode("latin-1")
    given = parse_qs(query, keep_blank_values=True).get("after")
    return read_sequence(given[-1], "after") if given else None
