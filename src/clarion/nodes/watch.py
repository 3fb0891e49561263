"""When to look in the store for what other nodes have changed."""

from __future__ import annotations

import asyncio
import random

from clarion.nodes.bus import Bus

# How soon a loop notices that the bus was lost, or is connected again.
TICK_S = 2.0
# Of each wait, at random: nodes that lose the bus together do not ask together.
_JITTER = 0.2


class Watch:
    """Says when a loop is due: often while the bus is disconnected, rarely while it is connected.

    It is also due after each gap, because something may have been missed.
    """

    def __init__(
        self, bus: Bus, *, disconnected_s: float, connected_s: float | None = None
    ) -> None:
        """`connected_s` None: never while the bus is connected."""
        self._bus = bus
        self._disconnected_s = disconnected_s
        self._connected_s = connected_s
        self._had_gap = False
        bus.on_gap(self.note_gap)

    def note_gap(self) -> None:
        """Have the loop look soon."""
        self._had_gap = True

    async def until_due(self) -> None:
        """Wait until it is time to look."""
        share = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - jitter
        tick_s, waited_s = min(self._disconnected_s, TICK_S) * share, 0.0
        while True:
            await asyncio.sleep(tick_s)
            waited_s += tick_s
            if self._had_gap or self._is_over(waited_s / share):
                self._had_gap = False
                return

    def _is_over(self, waited_s: float) -> bool:
        limit_s = self._connected_s if self._bus.is_connected else self._disconnected_s
        # Sums of ticks are not exact.
        return limit_s is not None and waited_s * 1.001 >= limit_s
