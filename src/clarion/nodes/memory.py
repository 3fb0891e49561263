"""Rate limits in process memory."""

from __future__ import annotations

from collections.abc import Sequence

from clarion.clock import Clock, SteadyClock
from clarion.nodes.port import Allowance, Quota, Taken

# With more keys in one window the counters start at zero again: memory is bounded, limits are not
# exact.
KEYS_LIMIT = 200_000


class MemoryLimits:
    """The `Limits` and `NodeLimits` ports: a dictionary for each window.

    A window keeps its length when the clock is set: none begins or lasts longer because of that.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = SteadyClock(clock)
        # By the length of the window: the number of the current window and its counts.
        self._windows: dict[int, tuple[int, dict[str, int]]] = {}

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        count = self.count(key, window_s=window_s, now=now)
        now -= self._clock.step_ms
        return allowance(count, limit=limit, window_s=window_s, now=now)

    async def take_all(self, quotas: Sequence[Quota], *, window_s: int, now: int) -> Taken:
        now -= self._clock.step_ms
        counts = self._counts_of(window_s, now // (window_s * 1000))
        used: list[int] = []
        for key, limit in quotas:
            count = counts[key] = counts.get(key, 0) + 1
            used.append(count)
            if count > limit:
                break
        return pick(quotas, used, window_s=window_s, now=now)

    def count(self, key: str, *, window_s: int, now: int) -> int:
        now -= self._clock.step_ms
        counts = self._counts_of(window_s, now // (window_s * 1000))
        count = counts[key] = counts.get(key, 0) + 1
        return count

    def find_reset_s(self, *, window_s: int, now: int) -> int:
        return window_s - (now - self._clock.step_ms) // 1000 % window_s

    def read(self, key: str, *, window_s: int, now: int) -> int:
        now -= self._clock.step_ms
        return self._counts_of(window_s, now // (window_s * 1000)).get(key, 0)

    def _counts_of(self, window_s: int, number: int) -> dict[str, int]:
        current, counts = self._windows.get(window_s, (-1, {}))
        if current != number or len(counts) >= KEYS_LIMIT:
            counts = {}
            self._windows[window_s] = (number, counts)
        return counts


def pick(quotas: Sequence[Quota], used: Sequence[int], *, window_s: int, now: int) -> Taken:
    """Return the quota with the least left, by the uses of each: the last one if it is exceeded."""
    position, least = 0, quotas[0].limit - used[0]
    for other in range(1, len(used)):
        left = quotas[other].limit - used[other]
        if left < least:
            position, least = other, left
    count, limit = used[position], quotas[position].limit
    return Taken(position, allowance(count, limit=limit, window_s=window_s, now=now))


def allowance(count: int, *, limit: int, window_s: int, now: int) -> Allowance:
    """Return the rest of a limit after `count` uses."""
    end = (now // (window_s * 1000) + 1) * window_s * 1000
    return Allowance(limit, max(0, limit - count), -(-(end - now) // 1000), count > limit)
