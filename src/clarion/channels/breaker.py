"""The circuit breaker of a provider: one that fails is not used for a while, then tried again."""

from __future__ import annotations

import random
from collections.abc import Collection
from enum import StrEnum

from clarion.telemetry.outages import Outage

# It opens when at least this number of attempts were made in a window, and half of them failed.
LEAST_ATTEMPTS = 5
FAILED_SHARE = 0.5
WINDOW_MS = 10_000
# How long it stays open; at random, so that many do not return at the same moment.
OPEN_MS = (15_000, 30_000)
# A provider that names a time up to this one is left alone for that time instead.
RETRY_AFTER_LONGEST_S = 300.0
# A provider that refuses its credentials will do so until somebody changes them.
MISCONFIGURED_MS = 300_000


class BreakerState(StrEnum):
    """closed → open → half open (one attempt is in progress) → closed or open."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def find_worst(states: Collection[BreakerState]) -> BreakerState:
    """Return the state of those breakers that are worst off; without any, closed."""
    worst_first = (BreakerState.OPEN, BreakerState.HALF_OPEN)
    return next((each for each in worst_first if each in states), BreakerState.CLOSED)


class Breaker:
    """Counts attempts and failures in windows; all times are of the monotonic clock."""

    def __init__(self, outage: Outage | None = None) -> None:
        self.state = BreakerState.CLOSED
        self.outage = outage or Outage("provider_circuit_open", "provider_circuit_closed")
        # Messages that were put off since it opened.
        self.waited = 0
        self._opens_until = 0
        self._window = 0  # the number of the current one
        # Attempts and failures, of the current window and the one before.
        self._counts = [0, 0]
        self._before = [0, 0]

    def allows(self, now: int) -> bool:
        """Whether an attempt may be made; if it is half open, one at a time may."""
        match self.state:
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN if now >= self._opens_until:
                self.state = BreakerState.HALF_OPEN
                return True
            case _:
                return False

    def wait_s(self, now: int) -> float:
        """Return after how many seconds it is worth to ask again."""
        return max(1.0, (self._opens_until - now) / 1000)

    def succeed(self, now: int) -> None:
        """Record an attempt that the provider answered, even if it refused the message."""
        if self.state is not BreakerState.CLOSED:
            self.outage.end(waited=self.waited)
            self.waited = 0
            self.state = BreakerState.CLOSED
            self._counts, self._before = [0, 0], [0, 0]
        self._count(now, 0)

    def fail(self, now: int, retry_after_s: float | None = None) -> bool:
        """Record a failed attempt; return whether it opened the breaker.

        `retry_after_s` is the wait that the provider asked for.
        """
        self._count(now, 1)
        attempts, failures = (sum(pair) for pair in zip(self._counts, self._before, strict=True))
        is_bad = attempts >= LEAST_ATTEMPTS and failures >= attempts * FAILED_SHARE
        if self.state is BreakerState.OPEN or not (is_bad or self.state is BreakerState.HALF_OPEN):
            return False
        for_ms = random.randint(*OPEN_MS)  # noqa: S311 - jitter
        if retry_after_s is not None and retry_after_s <= RETRY_AFTER_LONGEST_S:
            for_ms = int(retry_after_s * 1000)
        self.open(now, for_ms)
        return True

    def open(self, now: int, for_ms: int) -> None:
        """Refuse attempts for a time."""
        self.state = BreakerState.OPEN
        self._opens_until = now + for_ms

    def cancel(self) -> None:
        """Take back an attempt that was allowed but not made."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def _count(self, now: int, failures: int) -> None:
        window = now // WINDOW_MS
        if window != self._window:
            self._before = self._counts if window == self._window + 1 else [0, 0]
            self._counts, self._window = [0, 0], window
        self._counts[0] += 1
        self._counts[1] += failures
