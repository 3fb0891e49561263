"""The sockets of users: a thin shell that carries out what the session says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest

from clarion.access.model import UserCaller
from clarion.errors import ClarionError, RequestError, ServiceError, TooManyRequests
from clarion.inbox.feed import Feed
from clarion.inbox.frames import CloseCode
from clarion.inbox.sequences import read_sequence
from clarion.inbox.session import (
    HELLO_TIMEOUT_S,
    Act,
    Authorise,
    Close,
    Effect,
    Pull,
    SendFrame,
    Session,
)
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from clarion.access.model import Caller
    from clarion.clock import Clock
    from clarion.inbox.actions import Acts
    from clarion.inbox.live import Live, Screen
    from clarion.inbox.port import Inboxes

PATH = b"/v1/me/socket"
TICK_S = 5.0
# More frames between two ticks than this, and the client is too fast.
FRAMES_LIMIT = 1_000
# How long a socket may refuse to take what we write.
PAUSE_LIMIT_MS = 30_000
# How long a client may take to hear why it is sent away; then it is cut off.
CLOSE_LIMIT_MS = 10_000
# So many connections may be open that have not said whose they are.
STRANGERS_LIMIT = 1_000
_FAREWELL_S = 2.0
_NORMAL_CLOSURE = 1000
_REASON_LIMIT_BYTES = 123


class UserSockets:
    """The open sockets of users, their heart-beat, and what they work with."""

    def __init__(
        self,
        *,
        inboxes: Inboxes,
        acts: Acts,
        live: Live,
        identify: Callable[[str], Awaitable[Caller]],
        clock: Clock,
    ) -> None:
        self.inboxes = inboxes
        self.acts = acts
        self.live = live
        self.identify = identify
        self.clock = clock
        self._open: set[UserSocket] = set()
        # Those that have not said whose they are.
        self._strangers: set[UserSocket] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, request: WSUpgradeRequest) -> UserSocket:
        """Take a connection whose handshake has come."""
        return UserSocket(self, request)

    def opened(self, connection: UserSocket) -> None:
        """Know a connection."""
        self._open.add(connection)
        self._strangers.add(connection)

    def recognised(self, connection: UserSocket) -> None:
        """Know whose it is."""
        self._strangers.discard(connection)

    def closed(self, connection: UserSocket) -> None:
        """Know it no more."""
        self._open.discard(connection)
        self._strangers.discard(connection)

    @property
    def has_room_for_strangers(self) -> bool:
        """Whether one more may come that has not said whose it is."""
        return len(self._strangers) < STRANGERS_LIMIT

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Do work in the background, to its end."""
        task = asyncio.get_running_loop().create_task(_guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self) -> None:
        """Ping the quiet and cut off the dead, until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.now()
            for count, connection in enumerate(list(self._open)):
                connection.tick(now)
                if count % 1000 == 999:  # noqa: PLR2004 - let the loop breathe between thousands
                    await asyncio.sleep(0)

    async def stop(self, grace_s: float) -> None:
        """Close the open ones, telling them to come back, and finish what is under way."""
        waiting = [asyncio.ensure_future(each.end_for_restart()) for each in list(self._open)]
        if waiting:
            await asyncio.wait(waiting, timeout=min(grace_s, _FAREWELL_S))
        for connection in list(self._open):
            connection.cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()


class UserSocket(WSListener):
    """One socket: hands frames to its session and does what that says."""

    __slots__ = (
        "_after",
        "_closed_at",
        "_feed",
        "_frames",
        "_hello_timer",
        "_paused_at",
        "_screen",
        "_sockets",
        "_token",
        "_transport",
        "session",
    )

    def __init__(self, sockets: UserSockets, request: WSUpgradeRequest) -> None:
        self.session = Session(sockets.clock.now())
        self._sockets = sockets
        self._token = request.headers.get("authorization")
        self._after = request.path.partition(b"?")[2]
        self._transport: WSTransport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._screen: Screen | None = None
        self._feed: Feed | None = None
        self._frames = 0
        self._paused_at: int | None = None
        self._closed_at: int | None = None

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        if not self._sockets.has_room_for_strangers:
            transport.disconnect(graceful=False)
            return
        self._sockets.opened(self)
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._time_out_hello)
        if self._token:
            self._present(self._token)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._frames += 1
        if self.session.is_closed:
            if frame.msg_type == WSMsgType.CLOSE:
                transport.disconnect()
            return
        now = self._sockets.clock.now()
        match frame.msg_type:
            case WSMsgType.TEXT | WSMsgType.BINARY:
                is_text = frame.msg_type == WSMsgType.TEXT and frame.fin
                data = frame.get_payload_as_bytes()
                self.carry_out(self.session.receive(data, is_text=is_text, now=now))
            case WSMsgType.CLOSE:
                # A close without a code is answered with one: there is no zero on the wire.
                given: Any = frame.get_close_code()
                code: Any = given or _NORMAL_CLOSURE
                transport.send_close(code)
                transport.disconnect()
                self._closed_at = now
            case WSMsgType.PING:
                self.session.heard_at = now
                transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.CONTINUATION:
                self.carry_out(self.session.end(CloseCode.BAD_FRAME, "frames are sent whole"))
            case WSMsgType.PONG:
                self.session.heard_at = now

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002 - picows' signature
        self.session.is_closed = True
        self._leave()
        self._sockets.closed(self)

    def pause_writing(self) -> None:
        self.session.pause()
        self._paused_at = self._sockets.clock.now()

    def resume_writing(self) -> None:
        self._paused_at = None
        self.carry_out(self.session.resume())

    # What the house calls.

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the session says."""
        for effect in effects:
            match effect:
                case SendFrame(data):
                    self._send(data)
                case Authorise():
                    self._sockets.start(self._authorise(effect))
                case Pull():
                    self._sockets.start(self._pull())
                case Act():
                    self._sockets.start(self._act(effect))
                case Close():
                    self._close(effect)

    def tick(self, now: int) -> None:
        """Look at the clock."""
        if self._closed_at is not None and now - self._closed_at >= CLOSE_LIMIT_MS:
            self.cut()
        if self._frames > FRAMES_LIMIT:
            self._end(CloseCode.TOO_SLOW_OR_FAST, "too many frames")
        self._frames = 0
        if self._paused_at is not None and now - self._paused_at > PAUSE_LIMIT_MS:
            self._end(CloseCode.TOO_SLOW_OR_FAST, "reads too slowly")
        self.carry_out(self.session.tick(now))

    async def end_for_restart(self) -> None:
        """Tell the client to come back, and wait until it is gone."""
        self._end(CloseCode.RESTARTING, "the server restarts")
        if self._transport is not None:
            await self._transport.wait_disconnected()

    def cut(self) -> None:
        """End the connection without another word."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    # What the session asks for.

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, data)

    def _present(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        given = parse_qs(self._after.decode("latin-1")).get("after")
        try:
            after = read_sequence(given[-1], "after") if given else None
        except RequestError as error:
            self._end(CloseCode.BAD_FRAME, error.detail)
            return
        self.carry_out(self.session.present(token if scheme.lower() == "bearer" else "", after))

    async def _authorise(self, asked: Authorise) -> None:
        try:
            caller = await self._sockets.identify(f"Bearer {asked.token}")
            if not isinstance(caller, UserCaller):
                self._end(CloseCode.NOT_AUTHORISED, "this is for the tokens of users")
            elif not self.session.is_closed:
                await self._let_in(caller, asked.after)
        except TooManyRequests as error:
            self._end(CloseCode.TOO_SLOW_OR_FAST, error.detail)
        except RequestError as error:
            self._end(CloseCode.NOT_AUTHORISED, error.detail)
        except ServiceError as error:
            self._end(CloseCode.RESTARTING, error.detail)

    async def _let_in(self, caller: UserCaller, after: int | None) -> None:
        self._cancel_hello_timer()
        self._sockets.recognised(self)
        self._screen = self._sockets.live.open(
            caller.app_id, caller.user_id, wake=self._wake, end=self._end_for_stop
        )
        feed = Feed(self._sockets.inboxes, caller.app_id, caller.user_id)
        first = await feed.begin(after)
        self._feed = feed
        self.carry_out(self.session.welcome(first, caller.expires_at))

    def _wake(self) -> None:
        self.carry_out(self.session.wake())

    async def _pull(self) -> None:
        if self._feed is None:
            return
        try:
            updates, is_all = await self._feed.more()
            self.carry_out(self.session.take(updates, is_all=is_all))
        except ServiceError:
            self._end(CloseCode.RESTARTING, "the store does not answer")

    async def _act(self, act: Act) -> None:
        screen, refusal = self._screen, None
        if screen is None:
            return
        try:
            acted = await self._sockets.acts.act(act.verb, screen.app_id, screen.user_id, act.id)
            refusal = "not_found" if acted is None else None
        except ClarionError as error:
            refusal = error.code
        self.carry_out(self.session.settle(act.id, refusal))

    def _end_for_stop(self) -> None:
        self._end(CloseCode.RESTARTING, "the server restarts")

    def _end(self, code: CloseCode, reason: str) -> None:
        self.carry_out(self.session.end(code, reason))

    def _time_out_hello(self) -> None:
        self.carry_out(self.session.time_out_hello())

    def _cancel_hello_timer(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _leave(self) -> None:
        self._cancel_hello_timer()
        if self._screen is not None:
            self._sockets.live.close(self._screen)

    def _close(self, close: Close) -> None:
        self._leave()
        if self._transport is None:
            return
        # picows types the codes of the standard alone; ours are of the private range.
        code: Any = int(close.code)
        self._transport.send_close(code, _cut_short(close.reason))
        # The client closes the connection then, or `tick` does.
        self._closed_at = self._sockets.clock.now()


def _cut_short(reason: str) -> bytes:
    """Return as much of a sentence as a close frame has room for, in whole characters."""
    return reason.encode()[:_REASON_LIMIT_BYTES].decode(errors="ignore").encode()


async def _guard(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except ClarionError as error:
        get_logger().warning("inbox_work_failed", code=error.code)
