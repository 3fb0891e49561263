"""Time that a test moves: every job is worked off at its own moment on the way.

A retry that is due in an hour, and the next one after it, run at the times for which they are
planned, as if somebody had waited.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from clarion.clock import MovableClock
from clarion.events.pipeline import Pipeline

# How long a call works on what became due.
LIMIT_S = 20.0
_PAUSE_S = 0.002
# Jobs that become due within a moment of each other are worked off together.
_STEP_MS = 1


class Moved(msgspec.Struct, frozen=True):
    """What time it is, and whether everything that is due by then is done."""

    now: int
    is_settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualTime:
    """Moves the clock of this server ahead."""

    clock: MovableClock
    pipeline: Pipeline
    # The periodic tasks of a server: expire and prune due rows.
    clean_ups: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    limit_s: float = LIMIT_S
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def move_to(self, moment: int) -> Moved:
        """Work off everything that is due up to a time, each at its own; then it is that time."""
        async with self._turn, self._limit() as state:
            while (due_at := await self.pipeline.settle(_PAUSE_S)) <= moment:
                self.clock.move_to(due_at + _STEP_MS)
            self.clock.move_to(moment)
            for clean_up in self.clean_ups:
                await clean_up()
            await self.pipeline.settle(_PAUSE_S)
            state.append(True)
        self.clock.move_to(moment)
        return Moved(self.clock.now(), bool(state))

    @contextlib.asynccontextmanager
    async def _limit(self) -> AsyncIterator[list[bool]]:
        """Yield a function that returns whether the work was done in time."""
        done: list[bool] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limit_s):
                yield done
