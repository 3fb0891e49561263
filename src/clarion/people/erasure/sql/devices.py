"""The values by which rows of a user are found, also those of their devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from clarion.push.model import UNTIL_NOW, OwnedDevice
from clarion.store.statement import Value
from clarion.store.table import OF_DEVICES, Owner, Table


def choose_devices(
    table: Table[Any], devices: Iterable[OwnedDevice]
) -> Iterator[OwnedDevice | None]:
    """Yield the devices by which the rows of a table are found; None if they are found by the user.

    The current rows of a device belong to its current user.
    """
    if table.owner not in OF_DEVICES:
        yield None
        return
    for device in devices:
        if table.owner is not Owner.DEVICE or device.until == UNTIL_NOW:
            yield device


def values_of(app_id: str, user_id: str, device: OwnedDevice | None = None) -> dict[str, Value]:
    """Return the values of the conditions of `Owner`, for a user or for one of their devices."""
    values: dict[str, Value] = {
        "app_id": app_id,
        "user_id": user_id,
        "prefix": f"{user_id}\n",
        "length": len(user_id) + 1,
    }
    if device is not None:
        values |= {
            "device_id": device.id,
            "token_hash": device.token_hash,
            "since": device.since,
            "until": device.until,
        }
    return values
