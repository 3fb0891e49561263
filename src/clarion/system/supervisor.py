"""Runs the background loops. One that fails is logged, counted and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from clarion.telemetry.logs import get_logger

# The pause before a restart doubles with each failure in a row: 1, 2, 4 … 30 s.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
# A loop is reported after this number of failures in a row. A run of five minutes ends the row: it
# is longer than any sleep of a loop, or one that fails at each step would never be reported.
FAILURES_LIMIT = 3
STABLE_S = 300.0
# A cancellation that comes when something was just done can be lost, in libraries too (until Python
# 3.12 in `asyncio.wait_for`). So a loop that continues is cancelled again, and finally abandoned.
_CANCELLATIONS = 5
_CANCEL_S = 1.0


@dataclass(slots=True)
class _Loop:
    run: Callable[[], Awaitable[None]]
    drains: bool
    task: asyncio.Task[None] | None = None
    started_at: float = 0.0
    failures: int = 0  # in a row
    restarts: int = 0
    failed_by: str = ""  # the type of the last error


class Supervisor:
    """Keeps every loop of this process running until `stop`."""

    def __init__(self, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._first_pause_s = first_pause_s
        self._loops: dict[str, _Loop] = {}
        self._is_stopping = False

    def start(self, name: str, run: Callable[[], Awaitable[None]], *, drains: bool = False) -> None:
        """Run a loop until `stop`, which waits for those that drain: their owners end them."""
        loop = self._loops[name] = _Loop(run, drains)
        loop.task = asyncio.get_running_loop().create_task(self._supervise(name, loop), name=name)

    def find_failing(self) -> list[str]:
        """Return the names of the loops that fail repeatedly."""
        now = asyncio.get_running_loop().time()
        return [name for name, loop in self._loops.items() if _is_failing(loop, now)]

    def count_restarts(self) -> dict[str, int]:
        """Return how often each loop was started again."""
        return {name: loop.restarts for name, loop in self._loops.items()}

    async def stop(self, grace_s: float) -> None:
        """Cancel the loops; those that drain may first finish their current work."""
        self._is_stopping = True
        draining = [each.task for each in self._loops.values() if each.drains and each.task]
        if draining:
            await asyncio.wait(draining, timeout=grace_s)
        running = {each.task for each in self._loops.values() if each.task}
        for _ in range(_CANCELLATIONS):
            for task in running:
                task.cancel()
            if running:
                _, running = await asyncio.wait(running, timeout=_CANCEL_S)
        if running:
            names = sorted(task.get_name() for task in running)
            get_logger().error("loops_not_stopped", loops=names)

    async def _supervise(self, name: str, loop: _Loop) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            loop.started_at = clock()
            error: Exception | None = None
            try:
                await loop.run()
            except Exception as raised:  # noqa: BLE001 - no error may end the loop
                error = raised
            if self._is_stopping:
                return
            if clock() - loop.started_at >= STABLE_S:
                loop.failures = 0
            loop.failures += 1
            loop.restarts += 1
            _report(name, loop, error)
            pause_s = self._first_pause_s * 2 ** (loop.failures - 1)
            await asyncio.sleep(min(pause_s, LONGEST_PAUSE_S))


def _report(name: str, loop: _Loop, error: Exception | None) -> None:
    """Log a failure with its stack, unless it is like the one before."""
    before, loop.failed_by = loop.failed_by, type(error).__name__
    if loop.failures > 1 and before == loop.failed_by:
        get_logger().debug("loop_failed", loop=name, restarts=loop.restarts)
    else:
        get_logger().error("loop_failed", loop=name, restarts=loop.restarts, exc_info=error)


def _is_failing(loop: _Loop, now: float) -> bool:
    return loop.failures >= FAILURES_LIMIT and now - loop.started_at < STABLE_S
