"""Finds connected devices that other nodes changed, and ends their connections where needed.

Needed only if several nodes share a database. Devices that another node announces are checked at
once. All are compared with the store at a steady pace: 10,000 connections are checked within five
seconds, 100,000 within fifty. While the bus is connected that happens every few minutes, in case
that a message was lost. A connection also ends if the device has a newer one on another node;
nodes write that every two seconds while the bus is disconnected (`housekeeping.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from clarion.errors import ServiceError
from clarion.nodes.bus import Bus
from clarion.nodes.watch import Watch
from clarion.pacing import cut
from clarion.push.model import Device
from clarion.push.registry import Registry
from clarion.telemetry.outages import Work

CHUNK = 500
PAUSE_S = 0.25
CHECK_S = 300.0
_RETRY_S = 1.0


class DeviceChanges:
    """Compares the connected devices with the store periodically.

    Before a device counts as deleted, `find_deleted_apps` closes the connections of deleted apps,
    with that as the reason.
    """

    def __init__(
        self,
        registry: Registry,
        find_deleted_apps: Callable[[], Awaitable[None]],
        bus: Bus,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._registry = registry
        self._find_deleted_apps = find_deleted_apps
        self._pause_s = pause_s
        self._work = Work("device_changes")
        self._watch = Watch(bus, disconnected_s=pause_s, connected_s=CHECK_S)

    async def run(self) -> None:
        """Check all connections in turn, until cancelled."""
        while True:
            await self._watch.until_due()
            found = (each.session.device for each in self._registry.connections)
            for app_id, chunk in _cut(each for each in found if each is not None):
                await self._check(app_id, chunk)
                await asyncio.sleep(self._pause_s * len(chunk) / CHUNK)

    async def run_announced(self) -> None:
        """Check the connected devices that other nodes have changed, until cancelled."""
        while True:
            await self._registry.is_announced.wait()
            self._registry.is_announced.clear()
            announced, self._registry.announced = self._registry.announced, {}
            for app_id, chunk in _cut(announced.values()):
                while not await self._check(app_id, chunk):  # noqa: ASYNC110 - a check of the store
                    await asyncio.sleep(_RETRY_S)

    async def _check(self, app_id: str, devices: Sequence[Device]) -> bool:
        try:
            await self._registry.check(app_id, devices, self._find_deleted_apps)
        except ServiceError as error:
            self._work.fail(error)
            return False
        self._work.succeed()
        return True


def _cut(devices: Iterable[Device]) -> list[tuple[str, Sequence[Device]]]:
    """Return the devices in chunks of one app."""
    by_app: dict[str, list[Device]] = {}
    for device in devices:
        by_app.setdefault(device.app_id, []).append(device)
    return [(app_id, chunk) for app_id, some in by_app.items() for chunk in cut(some, CHUNK)]
