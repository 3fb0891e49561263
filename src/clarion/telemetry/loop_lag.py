"""Watches the event loop: how late it runs, and what blocked it.

Everything in this process shares one loop, so long work on it delays everything. A timer on
the loop measures how late it is called; a thread next to the loop notes, while it is blocked,
where it is.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from clarion.telemetry.logs import get_logger

_INTERVAL_S = 0.025
# A loop that is later than this is stalled: people notice a tenth of a second. It is logged if this
# thread worked as long. Otherwise the machine was busy or asleep, or waited for its disk: that is
# logged if it took longer.
STALL_S = 0.05
WAIT_S = 0.25
# One line of the log a second; the next one has the number of stalls between them.
_LOG_INTERVAL_S = 1.0
_FRAMES = 4
_PACKAGE = Path(__file__).parents[1]


@dataclass(slots=True)
class _Beat:
    """The last time the loop was seen running."""

    at: float
    cpu: float


class LoopWatch:
    """Measures the lag of the loop it runs on, and logs the stalls with their place."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe  # takes each lag, in seconds
        self.stalls = 0
        self._unlogged = 0
        self._logged_at = float("-inf")
        self._place = ""

    async def run(self) -> None:
        """Measure until cancelled."""
        beat = _Beat(time.monotonic(), time.thread_time())
        stop = threading.Event()
        thread = threading.get_ident()
        watcher = threading.Thread(
            target=self._watch, args=(beat, thread, stop), name="loop-watch", daemon=True
        )
        watcher.start()
        try:
            while True:
                await asyncio.sleep(_INTERVAL_S)
                self._measure(beat)
        finally:
            stop.set()

    def _measure(self, beat: _Beat) -> None:
        now, cpu = time.monotonic(), time.thread_time()
        lag_s = max(0.0, now - beat.at - _INTERVAL_S)
        # At least this part of the lag was work of this thread, not of others on a busy machine.
        cpu_s = max(0.0, cpu - beat.cpu - _INTERVAL_S)
        beat.at, beat.cpu = now, cpu
        place, self._place = self._place, ""
        self._observe(lag_s)
        if lag_s >= STALL_S:
            self._report(now, lag_s, cpu_s, place)

    def _report(self, now: float, lag_s: float, cpu_s: float, place: str) -> None:
        self.stalls += 1
        if cpu_s < STALL_S and lag_s < WAIT_S:
            return
        if now - self._logged_at < _LOG_INTERVAL_S:
            self._unlogged += 1
            return
        get_logger().warning(
            "loop_stalled",
            lag_ms=round(lag_s * 1000),
            cpu_ms=round(cpu_s * 1000),
            place=place or "unknown: it was over before it could be seen",
            more=self._unlogged,
        )
        self._logged_at, self._unlogged = now, 0

    def _watch(self, beat: _Beat, thread: int, stop: threading.Event) -> None:
        """Note where the loop is while it is late. Runs in a thread of its own."""
        late_s = _INTERVAL_S + STALL_S
        while not stop.wait(max(_INTERVAL_S, beat.at + late_s - time.monotonic())):
            if not self._place and time.monotonic() - beat.at >= late_s:
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way
                self._place = describe(frame)


def describe(frame: FrameType | None) -> str:
    """Return the innermost call, and the calls of our own code that led to it."""
    calls: list[str] = []
    while frame is not None and len(calls) < _FRAMES:
        path = Path(frame.f_code.co_filename)
        is_ours = path.is_relative_to(_PACKAGE)
        if is_ours or not calls:
            name = path.relative_to(_PACKAGE.parent) if is_ours else path.name
            calls.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(calls)
