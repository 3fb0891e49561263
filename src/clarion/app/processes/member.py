"""A process as one of several: its place among them, and its end with the parent's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable

from clarion.app.processes.control import READY, Start, receive_news
from clarion.nodes.local_bus import LocalBus

# For what a stop does after the grace period.
STOP_MARGIN_S = 10.0
_FIRST_FRAMES_S = 2.0
_EXIT_ORPHANED = 1


def longest_stop_s(grace_s: float) -> float:
    """Return how long a stop may take: requests first, then the workers."""
    return 2 * grace_s + STOP_MARGIN_S


class Member:
    """One of several processes that share the listeners, as that process sees it."""

    def __init__(self, control: socket.socket, start: Start, ends: list[socket.socket]) -> None:
        self.number = start.number
        self.bus = LocalBus(start.number)
        self._control = control
        self._ends = list(zip(start.others, ends, strict=True))
        self._longest_stop_s = longest_stop_s(start.settings.grace_s)
        self._are_all_ready = start.is_restart
        self._joining: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def join(self, on_orphaned: Callable[[], None]) -> AsyncIterator[None]:
        """Talk to the others; `on_orphaned` is called if the parent ends."""
        followed = (asyncio.get_running_loop(), on_orphaned)
        threading.Thread(target=self._follow, args=followed, name="parent", daemon=True).start()
        for number, end in self._ends:
            await self.bus.join(number, end)
        await self.bus.wait_for_first_frames(_FIRST_FRAMES_S)
        try:
            yield
        finally:
            await self.bus.close()

    def report_ready(self) -> None:
        """Let the parent know that this process serves requests."""
        with contextlib.suppress(OSError):  # the parent has ended: this process notices
            self._control.send(READY)

    def are_all_ready(self) -> bool:
        """Whether all of the processes have started: before, the server is not ready."""
        return self._are_all_ready

    def _follow(self, loop: asyncio.AbstractEventLoop, on_orphaned: Callable[[], None]) -> None:
        """Take news, such as sockets to new processes, until the parent ends; then end, too.

        In a thread of its own: a loop that hangs must not outlive the parent either.
        """
        try:
            while news := receive_news(self._control):
                if isinstance(news, bytes):
                    self._are_all_ready = True
                else:
                    loop.call_soon_threadsafe(self._join_soon, *news)
            loop.call_soon_threadsafe(on_orphaned)
        except RuntimeError:
            return  # the loop is closed: this process is ending
        time.sleep(self._longest_stop_s)
        os._exit(_EXIT_ORPHANED)

    def _join_soon(self, number: int, end: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self.bus.join(number, end))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)
