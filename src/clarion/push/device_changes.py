"""Finds what other nodes changed about connected devices, and ends the connections concerned.

Needed only where several nodes share a database. It reads at a steady pace, whatever the number of
connections: 10,000 are checked within five seconds, 100,000 within fifty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

from clarion.errors import ServiceError
from clarion.push.model import Device
from clarion.push.registry import Registry
from clarion.telemetry.logs import get_logger

CHUNK = 500
PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """Compares the connected devices with the store, again and again.

    Before a device counts as deleted, `find_deleted_apps` ends the connections of deleted apps: the
    devices of those are to hear that it was the app.
    """

    registry: Registry
    find_deleted_apps: Callable[[], Awaitable[None]]
    pause_s: float = PAUSE_S

    async def run(self) -> None:
        """Check all connections in turn, until cancelled."""
        while True:
            await asyncio.sleep(self.pause_s)
            for app_id, devices in self._by_app().items():
                waiting = iter(devices)
                while chunk := list(islice(waiting, CHUNK)):
                    await self._check(app_id, chunk)
                    await asyncio.sleep(self.pause_s * len(chunk) / CHUNK)

    def _by_app(self) -> dict[str, list[Device]]:
        by_app: dict[str, list[Device]] = {}
        for connection in self.registry.connections:
            if device := connection.session.device:
                by_app.setdefault(device.app_id, []).append(device)
        return by_app

    async def _check(self, app_id: str, devices: list[Device]) -> None:
        try:
            await self.registry.check(app_id, devices, self.find_deleted_apps)
        except ServiceError as error:
            get_logger().warning("device_check_failed", code=error.code)
