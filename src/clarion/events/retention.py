"""Deletes what has been kept long enough, in small steps."""

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
    from clarion.events.port import Retention
    from clarion.inbox.port import Inboxes
    from clarion.push.port import Devices

INTERVAL_S = 60.0
CHUNK = 500
_DAY_MS = 24 * 3600 * 1000
_PAUSE_S = 0.05


class Keeper:
    """Deletes events, notifications, devices, claims and answers when their time is over."""

    def __init__(
        self,
        *,
        retention: Retention,
        inboxes: Inboxes,
        devices: Devices,
        apps: Apps,
        clock: Clock,
        event_days: int,
        notification_days: int,
        device_days: int,
    ) -> None:
        self._retention = retention
        self._inboxes = inboxes
        self._devices = devices
        self._apps = apps
        self._clock = clock
        self._event_ms = event_days * _DAY_MS
        self._notification_ms = notification_days * _DAY_MS
        self._device_ms = device_days * _DAY_MS

    async def run(self) -> None:
        """Sweep once a minute until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.sweep()
            except ClarionError as error:
                get_logger().warning("retention_failed", code=error.code)

    async def sweep(self) -> None:
        """Do everything that is due."""
        now = self._clock.now()
        await _repeat(partial(self._retention.prune_answers, now, CHUNK))
        await _repeat(partial(self._retention.prune_claims, now, CHUNK))
        await _repeat(partial(self._forget_notifications, now - self._notification_ms))
        await _repeat(partial(self._delete_devices, now))
        for app in await self._apps.list():
            before = now - self._event_ms
            await _repeat(partial(self._retention.prune_events, app.id, before, CHUNK))

    async def _delete_devices(self, now: int) -> int:
        found = await self._retention.find_old_devices(now - self._device_ms, CHUNK)
        await asyncio.gather(*(self._devices.delete(*each, now) for each in found))
        return len(found)

    async def _forget_notifications(self, before: int) -> int:
        found = await self._retention.find_old_notifications(before, CHUNK)
        forget = (self._inboxes.forget(*whose, ids) for whose, ids in found.items())
        await asyncio.gather(*forget)
        # A notification has several deliveries, so fewer than a chunk may be found and more left.
        return CHUNK if found else 0


async def _repeat(step: Callable[[], Awaitable[int]]) -> None:
    """Take one small step after another until nothing is left."""
    while await step() >= CHUNK:  # noqa: ASYNC110 - a pause between steps, not a wait
        await asyncio.sleep(_PAUSE_S)
