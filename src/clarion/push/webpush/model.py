"""Web Push endpoints of devices."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from clarion.push.model import Device


class PushEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A URL by which messages are sent to a device. Only the hash of its secret part is stored.

    It belongs to one user (empty if the device has none): a user who takes over the device gets
    nothing that is sent to it.
    """

    id: str
    app_id: str
    device_id: str
    user_id: str
    capability_hash: bytes
    vapid_key: str | None = None  # the only key that may sign
    label: str | None = None
    created_at: int


class StoredEndpoint(NamedTuple):
    """An endpoint, and the token hash of its device; None if the device does not exist."""

    endpoint: PushEndpoint
    token_hash: bytes | None


class EndpointOfDevice(NamedTuple):
    """An endpoint with its device, which is valid."""

    endpoint: PushEndpoint
    device: Device
