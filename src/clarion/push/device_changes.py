"""Finds what other nodes changed about connected devices, and ends the connections concerned.

Needed only where several nodes share a database. It reads at a steady pace, whatever the number of
connections: 10,000 are checked within five seconds, 100,000 within fifty.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice

from clarion.errors import ServiceError
from clarion.push.registry import Registry
from clarion.telemetry.logs import get_logger

CHUNK = 500
PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """Compares the connected devices with the store, again and again."""

    registry: Registry
    pause_s: float = PAUSE_S

    async def run(self) -> None:
        """Check all connections in turn, until cancelled."""
        while True:
            await asyncio.sleep(self.pause_s)
            waiting = iter(self.registry.connections)
            while chunk := [each.session.device for each in islice(waiting, CHUNK)]:
                try:
                    await self.registry.check([device for device in chunk if device])
                except ServiceError as error:
                    get_logger().warning("device_check_failed", code=error.code)
                await asyncio.sleep(self.pause_s)
