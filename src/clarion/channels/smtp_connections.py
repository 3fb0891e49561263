"""Connections to one SMTP server: opened when needed, reused, and closed when they are idle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

from aiosmtplib import SMTP
from aiosmtplib.errors import SMTPException

# Shorter than any server's own limit: a connection that was closed over there is rarely met.
IDLE_S = 15.0
# Many servers end a connection after some number of messages.
MESSAGES_LIMIT = 100


@dataclass(slots=True, eq=False)
class SmtpConnection:
    """A connection that is ready for a message."""

    client: SMTP
    messages: int = 0
    idle_since: float = 0.0
    is_clean: bool = True  # no message is in progress
    is_refused: bool = False  # the server refused the last message in the middle: RSET is needed

    @property
    def is_reused(self) -> bool:
        return self.messages > 1

    def close(self) -> None:
        """Say goodbye without waiting for the answer."""
        if self.client.protocol is not None and self.client.is_connected and self.is_clean:
            with contextlib.suppress(SMTPException, OSError):
                self.client.protocol.write(b"QUIT\r\n")
        self.client.close()


class SmtpConnections:
    """A pool with at most one connection for each concurrent attempt."""

    def __init__(
        self, open_client: Callable[[], Awaitable[SMTP]], limit: int, *, idle_s: float = IDLE_S
    ) -> None:
        self._idle_s = idle_s
        self._open = open_client
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[SmtpConnection] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def lend(self, *, is_new: bool = False) -> AsyncIterator[SmtpConnection]:
        """Lend a connection for one message; with `is_new`, a fresh one.

        It is kept for the next message, unless this one failed in the middle.
        """
        async with self._slots:
            connection = (None if is_new else self._take()) or SmtpConnection(await self._open())
            connection.messages += 1
            try:
                yield connection
            finally:
                self._put(connection)

    def close(self) -> None:
        """Close idle connections; those that are lent are closed when they are returned."""
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take(self) -> SmtpConnection | None:
        self._close_idle()
        # The one used last: the others may become idle for long enough to be closed.
        return self._idle.pop() if self._idle else None

    def _put(self, connection: SmtpConnection) -> None:
        is_worn = connection.messages >= MESSAGES_LIMIT or not connection.client.is_connected
        if not connection.is_clean or is_worn or self._is_closed:
            connection.close()
            return
        connection.idle_since = monotonic()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._close_idle()
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._on_timer)

    def _close_idle(self) -> None:
        oldest = monotonic() - self._idle_s
        old = [
            each for each in self._idle if each.idle_since <= oldest or not each.client.is_connected
        ]
        for connection in old:
            connection.close()
            self._idle.remove(connection)
