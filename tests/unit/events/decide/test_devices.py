"""Which devices get a push now, and which later."""

import datetime as dt
from typing import Any

import pytest

from clarion.catalog.model import Category
from clarion.events.decide.devices import ChosenDevices, choose_devices
from clarion.push.model import Device, DeviceDetails, DevicePreferences
from tests.factories import make_device, make_type, make_user

NOON = int(dt.datetime(2026, 1, 11, 12, tzinfo=dt.UTC).timestamp() * 1000)
HOUR = 3_600_000
AT_NOON = tuple(hour == 12 for hour in range(24))
ALWAYS = (True,) * 24


def make(timezone: str | None = None, **preferences: Any) -> Device:
    details = DeviceDetails(timezone=timezone)
    return make_device(details=details, preferences=DevicePreferences(**preferences))


def choose(*devices: Device, timezone: str = "UTC", **flags: bool) -> ChosenDevices:
    passing = {"ignores_toggles": False, "ignores_quiet_hours": False} | flags
    return choose_devices(devices, make_type(), make_user(timezone=timezone), NOON, **passing)


def test_a_device_gets_everything_by_default() -> None:
    device = make()
    assert choose(device) == ChosenDevices((device,), ())


@pytest.mark.parametrize(
    "preferences",
    [
        {"enabled": False},
        {"categories": {Category.TRANSACTIONAL: False}},
        {"types": {"ORDER_SHIPPED": False}},
    ],
)
def test_a_device_does_not_get_what_is_off(preferences: dict[str, Any]) -> None:
    device, other = make(**preferences), make()
    assert choose(device, other) == ChosenDevices((other,), ())
    assert choose(device, ignores_toggles=True) == ChosenDevices((device,), ())


def test_other_toggles_do_not_matter() -> None:
    device = make(categories={Category.NEWS: False}, types={"OTHER": False})
    assert choose(device).now == (device,)


def test_a_device_that_is_quiet_gets_it_later() -> None:
    quiet, other = make(quiet_hours=AT_NOON), make()
    chosen = choose(quiet, other)
    assert chosen == ChosenDevices((other,), ((quiet, NOON + HOUR),))
    assert chosen.next_at == NOON + HOUR
    assert choose(quiet, ignores_quiet_hours=True).now == (quiet,)


def test_quiet_hours_are_those_of_the_devices_time_zone_or_else_of_the_users() -> None:
    in_berlin, of_user = make("Europe/Berlin", quiet_hours=AT_NOON), make(quiet_hours=AT_NOON)
    assert choose(in_berlin, of_user).now == (in_berlin,)
    assert choose(in_berlin, of_user, timezone="Asia/Tokyo").now == (in_berlin, of_user)


def test_a_device_that_is_always_quiet_has_no_time() -> None:
    quiet, short = make(quiet_hours=ALWAYS), make(quiet_hours=AT_NOON)
    assert choose(quiet) == ChosenDevices((), ((quiet, None),))
    assert choose(quiet).next_at is None
    assert choose(quiet, short).next_at == NOON + HOUR
