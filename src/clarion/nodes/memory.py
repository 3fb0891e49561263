"""Hot state in this process."""

from __future__ import annotations

from clarion.nodes.model import Allowance

# Beyond this many keys in one window the counters start afresh: memory is bounded, limits are not
# promises.
KEYS_LIMIT = 200_000


class MemoryLimits:
    """The `Limits` port in a dictionary that lives as long as its window."""

    def __init__(self) -> None:
        # By length of window: the number of the current one, and the counts in it.
        self._windows: dict[int, tuple[int, dict[str, int]]] = {}

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        """Count one use."""
        count = self.count(key, window_s=window_s, now=now)
        return allowance(count, limit=limit, window_s=window_s, now=now)

    def count(self, key: str, *, window_s: int, now: int) -> int:
        """Count one use, and return how many there were in this window."""
        counts = self._counts_of(window_s, now // (window_s * 1000))
        count = counts[key] = counts.get(key, 0) + 1
        return count

    def _counts_of(self, window_s: int, number: int) -> dict[str, int]:
        current, counts = self._windows.get(window_s, (-1, {}))
        if current != number or len(counts) >= KEYS_LIMIT:
            counts = {}
            self._windows[window_s] = (number, counts)
        return counts


def allowance(count: int, *, limit: int, window_s: int, now: int) -> Allowance:
    """Say what a count leaves of a limit."""
    end = (now // (window_s * 1000) + 1) * window_s * 1000
    return Allowance(
        limit=limit,
        remaining=max(0, limit - count),
        reset_s=-(-(end - now) // 1000),
        is_exceeded=count > limit,
    )
