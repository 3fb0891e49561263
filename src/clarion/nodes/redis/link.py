"""One connection to a server: commands are pipelined, messages of channels arrive in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from clarion.nodes.redis.address import RedisAddress, ServerAddress

# How long an answer may take.
TIMEOUT_S = 0.5
# How long it may take to connect: only a probe waits for it.
_CONNECT_TIMEOUT_S = 1.5
# After a stall the loop runs its timers before it reads its sockets: they get a second look.
_SECOND_LOOK_S = 0.1

Command = tuple[str | bytes | int, ...]
# Called with what arrives on a channel: the name of the channel and the data.
Push = Callable[[bytes, bytes], None]
_NOTHING = object()
# Its types say that a command has one part.
_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]


class RedisRefused(Exception):
    """Redis answered a command with an error."""


def check(*replies: object) -> None:
    """Raise `RedisRefused` if one of the replies is an error."""
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise RedisRefused(str(reply))


class RedisLink(asyncio.Protocol):
    """A connection on which the answers come in the order of the commands.

    It is lost as soon as an answer is late: no command waits behind one that hangs. Then all
    waiting commands fail, and `on_lost` is called, once.
    """

    def __init__(
        self, server: ServerAddress, on_push: Push, on_lost: Callable[[RedisLink], None]
    ) -> None:
        self.server = server
        self.error: BaseException | None = None
        self.hello: dict[bytes, Any] = {}
        self._on_push = on_push
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        # For each call: its future, the answers so far, their expected number, and the deadline.
        self._waiting: deque[tuple[asyncio.Future[list[Any]], list[Any], int, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._suspect: object = None

    def send(self, commands: Sequence[Command]) -> asyncio.Future[list[Any]]:
        """Send commands in one write; the future has the answers, errors among them."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self._transport is None or self.error is not None:
            future.set_exception(self.error or ConnectionError("not connected"))
            future.exception()
        elif not commands:
            future.set_result([])
        else:
            until = self._loop.time() + TIMEOUT_S
            self._waiting.append((future, [], len(commands), until))
            self._transport.write(b"".join(map(_pack, commands)))
            if self._timer is None:
                self._timer = self._loop.call_later(TIMEOUT_S, self._look_for_late)
        return future

    def close(self, error: BaseException | None = None) -> None:
        """Close the connection; waiting commands fail."""
        if self.error is not None:
            return
        self.error = error or ConnectionError("closed")
        if self._timer:
            self._timer.cancel()
        if self._transport:
            self._transport.abort()
        for future, *_ in self._waiting:
            if not future.done():
                future.set_exception(self.error)
                future.exception()  # retrieved, in case that the caller was cancelled
        self._waiting.clear()
        if error is not None:
            self._on_lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(exc or ConnectionResetError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                self._take(reply)
        except hiredis.ProtocolError as error:
            self.close(ConnectionError(str(error)))

    def _take(self, reply: Any) -> None:
        if isinstance(reply, hiredis.PushNotification) and reply[0] != b"ssubscribe":
            if reply[0] == b"smessage":
                self._on_push(reply[1], reply[2])
            elif reply[0] == b"sunsubscribe":
                self.close(ConnectionError("a channel was moved to another server"))
            return
        if not self._waiting:
            self.close(ConnectionError("an answer without a command"))
            return
        # The answer to SSUBSCRIBE looks like a message.
        future, replies, count, _ = self._waiting[0]
        replies.append(reply)
        if len(replies) == count:
            self._waiting.popleft()
            if not future.done():
                future.set_result(replies)

    def _look_for_late(self) -> None:
        self._timer = None
        if not self._waiting:
            self._suspect = None
            return
        first, now = self._waiting[0], self._loop.time()
        if first[3] > now:
            self._timer = self._loop.call_at(first[3], self._look_for_late)
        elif self._suspect is first[0]:
            self.close(TimeoutError("no answer"))
        else:
            self._suspect = first[0]
            self._timer = self._loop.call_later(_SECOND_LOOK_S, self._look_for_late)


async def open_link(
    address: RedisAddress,
    server: ServerAddress,
    on_push: Push,
    on_lost: Callable[[RedisLink], None],
) -> RedisLink:
    """Connect and authenticate; `OSError`, `TimeoutError` or `RedisRefused` if that fails."""
    link, loop = RedisLink(server, on_push, on_lost), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            if server.port:
                await loop.create_connection(lambda: link, *server, ssl=address.tls)
            else:
                await loop.create_unix_connection(lambda: link, server.host)
            link.hello = await _say_hello(link, address)
    except BaseException:
        with contextlib.suppress(Exception):
            link.close()
        raise
    return link


async def _say_hello(link: RedisLink, address: RedisAddress) -> dict[bytes, Any]:
    hello: Command = ("HELLO", 3)
    if address.password:
        hello = (*hello, "AUTH", address.username, address.password)
    commands: list[Command] = [(*hello, "SETNAME", "clarion")]
    if address.number:
        commands.append(("SELECT", address.number))
    replies = await link.send(commands)
    check(*replies)
    answer: dict[bytes, Any] = replies[0]
    return answer
