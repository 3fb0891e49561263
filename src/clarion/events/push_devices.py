"""Reads the devices that pushes to users can reach."""

from __future__ import annotations

from collections.abc import Collection

from clarion.push.model import Device
from clarion.push.port import Devices

# Of a user with more devices, those seen last are sent to. By default users have three.
DEVICES_LIMIT = 100


async def read_devices(
    devices: Devices, app_id: str, user_ids: Collection[str]
) -> dict[str, tuple[Device, ...]]:
    """Return the valid devices of users that a push can reach, by user id, in one read."""
    found = await devices.valid_of_users(app_id, user_ids, DEVICES_LIMIT)
    return {user_id: tuple(filter(is_reachable, some)) for user_id, some in found.items()}


def is_reachable(device: Device) -> bool:
    """Whether our own gateway reaches the device: it has no address at another push service."""
    return device.address is None
