"""Work in slices: what takes long lets the other tasks of the event loop run in between."""

from __future__ import annotations

import asyncio
import time

# Many of these fit into the time that a client notices; a switch costs a thousandth of it.
SLICE_S = 0.004


class Slices:
    """Counts the time since the last pause. For one task, from its first step to its last."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at = time.perf_counter() + SLICE_S

    async def pause(self) -> None:
        """Let other tasks run, if this one has worked for a slice."""
        if time.perf_counter() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.perf_counter() + SLICE_S
