"""Which devices of a user a push goes to: now, and after their own quiet hours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clarion.catalog.model import NotificationType
from clarion.people.model import User
from clarion.people.model.quiet_hours import find_end
from clarion.push.model import Device


class ChosenDevices(NamedTuple):
    """The devices that want a push: those to send to now, and the others with a time for each.

    The time is the end of the device's quiet hours; None: every hour is quiet.
    """

    now: tuple[Device, ...] = ()
    later: tuple[tuple[Device, int | None], ...] = ()

    @property
    def next_at(self) -> int | None:
        """The earliest time at which a device that is quiet now can be sent to."""
        return min((until for _, until in self.later if until is not None), default=None)


def choose_devices(
    devices: Iterable[Device],
    definition: NotificationType,
    user: User,
    now: int,
    *,
    ignores_toggles: bool,
    ignores_quiet_hours: bool,
) -> ChosenDevices:
    """Return the devices that want a push of a type; the quiet hours of the user do not count."""
    wanting = [each for each in devices if ignores_toggles or _wants(each, definition)]
    ends = [now if ignores_quiet_hours else _find_quiet_end(each, user, now) for each in wanting]
    pairs = list(zip(wanting, ends, strict=True))
    return ChosenDevices(
        tuple(device for device, until in pairs if until == now),
        tuple((device, until) for device, until in pairs if until != now),
    )


def _wants(device: Device, definition: NotificationType) -> bool:
    preferences = device.preferences
    return (
        preferences.enabled
        and preferences.categories.get(definition.category, True)
        and preferences.types.get(definition.type, True)
    )


def _find_quiet_end(device: Device, user: User, now: int) -> int | None:
    hours = device.preferences.quiet_hours
    if hours is None:
        return now
    return find_end(now, hours, device.details.timezone or user.timezone)
