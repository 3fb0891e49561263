"""What the connections of a run share: what is due when, what came of it, and the pace."""

import asyncio
import ctypes
import math
import os
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import CLOCK_MONOTONIC, perf_counter
from typing import TYPE_CHECKING, cast

from bench.http2.frames import encode_headers
from bench.http2.terms import Load, OnAnswer, Request, Result, Source

if TYPE_CHECKING:
    from bench.http2.connection import Connection

UNLIMITED = sys.maxsize
# More ticks than this would cost more than their precision is worth.
SHORTEST_TICK_S = 0.0002


class Schedule:
    """Which request is due when. Before `begin` none is; a closed loop always has one due."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rate = load.rate
        self._origin = 0.0
        self._limit = 0
        self._issued = 0

    def begin(self, now: float) -> float:
        """Gives the intended time of the first request that counts, if that is known already."""
        self._origin = now
        self._limit = UNLIMITED
        if self._rate is None:
            return math.inf
        first = math.ceil(self._rate * self._load.warm_up_s)
        in_time = math.ceil(self._rate * self._load.duration_s)
        self._limit = first + min(self._load.total or UNLIMITED, in_time)
        return now + first / self._rate

    def measure(self, now: float) -> float:
        """End the warm-up of a closed loop; from here on requests count."""
        self._limit = min(self._issued + (self._load.total or UNLIMITED), UNLIMITED)
        return now

    def due(self, now: float) -> int:
        if self._rate is None:
            return self._limit - self._issued
        return min(self._limit, int((now - self._origin) * self._rate) + 1) - self._issued

    def take(self, now: float) -> tuple[int, float]:
        index = self._issued
        self._issued = index + 1
        return index, now if self._rate is None else self._origin + index / self._rate

    def stop(self, now: float) -> int:
        """Nothing is due any more; gives how many were and have not been sent."""
        unsent = 0 if self._limit == UNLIMITED else self.due(now)
        self._limit = self._issued
        return unsent

    @property
    def next_due(self) -> float:
        return self._origin + self._issued / (self._rate or math.inf)

    @property
    def over(self) -> bool:
        return self._issued >= self._limit


class Tally:
    """What became of the requests meant to start at `since` or later."""

    def __init__(self) -> None:
        self.since = math.inf
        self.last = 0.0
        self.sent = 0
        self.by_status = [0] * 1000
        self.errors: Counter[str] = Counter()
        self.latencies = array("d")

    def start(self, intended: float) -> None:
        if intended >= self.since:
            self.sent += 1

    def answer(self, intended: float, now: float, status: int) -> None:
        if intended >= self.since:
            self.by_status[status] += 1
            self.latencies.append(now - intended)
            self.last = now

    def failure(self, intended: float, reason: str) -> None:
        if intended >= self.since:
            self.errors[reason] += 1

    def unsent(self, count: int) -> None:
        if count > 0:
            self.errors["unsent"] += count

    def result(self, until: float, cpu_s: float) -> Result:
        return Result(
            sent=self.sent,
            by_status={status: n for status, n in enumerate(self.by_status) if n},
            errors=dict(self.errors),
            seconds=max(until, self.last, self.since) - self.since,
            cpu_s=cpu_s,
            latencies=array("d", sorted(self.latencies)),
        )


class Session:
    """What the connections of a run share, and how they know that nothing is left to do."""

    def __init__(self, load: Load, source: Source, on_answer: OnAnswer | None) -> None:
        self.load = load
        self.source = source
        self.on_answer = on_answer
        self.schedule = Schedule(load)
        self.tally = Tally()
        self.live: list[Connection] = []
        self.fault: BaseException | None = None
        self._quiet = asyncio.Event()
        self._place = "https" if load.tls else "http", f"{load.host}:{load.port}"
        self._encoded: tuple[Request | None, tuple[bytes, bytes]] = None, (b"", b"")

    def encoded(self, request: Request) -> tuple[bytes, bytes]:
        """Encode a request, unless it is the very object of the last time."""
        if self._encoded[0] is not request:
            self._encoded = request, encode_headers(request, *self._place)
        return self._encoded[1]

    def fill(self) -> None:
        """Start what is due, evenly over the connections and with another one first each time."""
        now = perf_counter()
        due = self.schedule.due(now)
        if due > 0 and self.live:
            share = -(-due // len(self.live))
            self.live.append(self.live.pop(0))
            for connection in self.live:
                connection.fill(now, share)

    def settle(self) -> None:
        if not self.live or (self.schedule.over and all(c.idle for c in self.live)):
            self._quiet.set()

    def fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Keep an exception of a callback, such as the caller's own, for the end of the run."""
        if exception := context.get("exception"):
            self.fault = cast("BaseException", exception)
            self._quiet.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the time to pass or for the end of all work, whichever comes first."""
        self._quiet.clear()
        self.settle()
        if self.fault:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        except TimeoutError:
            return


class Pacer:
    """Wakes an open loop when a request falls due; a closed one is driven by its answers.

    It is a timer of the kernel, because those of the event loop are rounded to a millisecond.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "no timer")
        asyncio.get_running_loop().add_reader(self._timer, self._on_time)

    def arm(self) -> None:
        """Set the timer to the next request due, or a tick from now when it is due already."""
        at = max(self._session.schedule.next_due, perf_counter() + SHORTEST_TICK_S)
        once_at = struct.pack("@4l", 0, 0, int(at), int(at % 1 * 1e9))
        self._libc.timerfd_settime(self._timer, 1, once_at, None)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._timer)
        os.close(self._timer)

    def _on_time(self) -> None:
        os.read(self._timer, 8)
        self._session.fill()
        self.arm()


@contextmanager
def pacing(session: Session) -> Iterator[None]:
    if session.load.rate is None:
        yield
        return
    pacer = Pacer(session)
    pacer.arm()
    try:
        yield
    finally:
        pacer.stop()
