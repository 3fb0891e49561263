"""Background work of sockets, which no caller awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from clarion.errors import ClarionError
from clarion.telemetry.outages import log_failure


class BackgroundTasks:
    """Runs coroutines to their end; one that fails with an error of Clarion is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(_log_failure(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, grace_s: float) -> None:
        """Wait for running tasks during the grace period, then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()


async def _log_failure(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except ClarionError as error:
        # Nothing is lost: what a client has not acknowledged is sent again.
        log_failure("socket_task_failed", error)
