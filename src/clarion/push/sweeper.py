"""Housekeeping of the gateway: what has expired, what is old, who was seen."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from clarion.errors import ClarionError
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clarion.access.port import Apps
    from clarion.clock import Clock
    from clarion.push.dispatch import Dispatch
    from clarion.push.port import Broadcasts, Devices, History, Messages

INTERVAL_S = 10.0
CHUNK = 500
_DAY_MS = 24 * 3600 * 1000
_PAUSE_S = 0.05


class Sweeper:
    """Sweeps in small steps, so that intake is never kept waiting."""

    def __init__(
        self,
        *,
        messages: Messages,
        history: History,
        broadcasts: Broadcasts,
        devices: Devices,
        apps: Apps,
        dispatch: Dispatch,
        clock: Clock,
        keep_days: int,
    ) -> None:
        self._messages = messages
        self._history = history
        self._broadcasts = broadcasts
        self._devices = devices
        self._apps = apps
        self._dispatch = dispatch
        self._clock = clock
        self._keep_ms = keep_days * _DAY_MS

    async def run(self) -> None:
        """Sweep every ten seconds until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.sweep()
            except ClarionError as error:
                get_logger().warning("sweep_failed", code=error.code)

    async def sweep(self) -> None:
        """Do everything that is due."""
        now = self._clock.now()
        seen, self._dispatch.seen = list(self._dispatch.seen), set()
        await self._devices.touch(seen, now)
        await _repeat(partial(self._messages.expire, now, CHUNK))
        await _repeat(partial(self._broadcasts.expire, now, CHUNK))
        for app in await self._apps.list():
            await _repeat(partial(self._history.prune, app.id, now - self._keep_ms, CHUNK))


async def _repeat(step: Callable[[], Awaitable[int]]) -> None:
    """Take one small step after another until nothing is left."""
    while await step() == CHUNK:  # noqa: ASYNC110 - a pause between steps, not a wait for something
        await asyncio.sleep(_PAUSE_S)
