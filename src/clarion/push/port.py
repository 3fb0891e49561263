"""What other slices use of devices, their messages and topics."""

from __future__ import annotations

from typing import Protocol

from clarion.push.dispatch import Dispatch as Dispatch
from clarion.push.model import Device, InvalidationReason
from clarion.push.sql.devices import Devices as Devices
from clarion.push.sql.topics import Broadcasts as Broadcasts
from clarion.push.sql.topics import Topics as Topics


class DeviceRegistry(Protocol):
    """Ends devices that other push services report gone."""

    async def invalidate(
        self,
        app_id: str,
        device_id: str,
        reason: InvalidationReason,
        address: bytes | None = None,
    ) -> Device | None:
        """Invalidate a device; None if the app has no such valid device.

        With the address that was found gone: only if it has not been registered again since.
        """
