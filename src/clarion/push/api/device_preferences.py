"""The preferences of a device in requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

from clarion.catalog.model import Category
from clarion.catalog.port import Catalog
from clarion.errors import FieldFault, InvalidFields
from clarion.fields import documented
from clarion.http.bodies import Body, collect, given_checks
from clarion.http.shapes import Toggles, check_toggle_names
from clarion.http.views import View
from clarion.people.model.quiet_hours import (
    QUIET_HOURS,
    GivenQuietHours,
    QuietHours,
    QuietWindow,
    check_quiet_hours,
)
from clarion.push.model import Device, DevicePreferences

T = TypeVar("T")
K = TypeVar("K")
TYPES_LIMIT = 1_000  # as in the preferences of users
Given: TypeAlias = T | UnsetType | None
Edit = Callable[[DevicePreferences], DevicePreferences]


class DevicePreferencesBody(Body):
    """Preferences of a device to set. Null resets a value to its default."""

    enabled: Given[bool] = UNSET
    """Whether the device receives notifications at all."""
    categories: Given[Toggles] = UNSET
    """Whether it receives those of a category, by category."""
    types: Annotated[Given[Toggles], documented(maxProperties=TYPES_LIMIT)] = UNSET
    """Whether it receives those of a type, by type."""
    quiet_hours: Annotated[Given[GivenQuietHours], QUIET_HOURS] = UNSET
    """When it receives nothing, in its time zone: windows, or 24 flags."""


class DevicePreferencesView(View):
    """What the device receives.

    `categories` has the built-in ones and those that are off, `types` those that are off.

    `quiet_hours` are flags or windows, as they were set, in the time zone of the device, or of its
    user if it has none; null: only the quiet hours of the user apply.
    """

    enabled: bool
    """Whether the device receives notifications at all."""
    categories: dict[str, bool]
    """Whether it receives those of a category, by category."""
    types: dict[str, bool]
    """The types that it does not receive, each false."""
    quiet_hours: list[bool | QuietWindow] | None
    """When it receives nothing, in its time zone, as it was set; null: only the quiet hours of its
    user apply.
    """


async def check_preferences(
    body: DevicePreferencesBody | UnsetType | None, catalog: Catalog, app_id: str
) -> Edit | None:
    """Return the edit that a request asks for; None if it leaves the preferences as they are."""
    if isinstance(body, UnsetType):
        return None
    if body is None:
        return lambda _old: DevicePreferences()
    types = await catalog.list_types(app_id) if body.types else ()
    categories = await catalog.list_categories(app_id) if body.categories else ()
    known = [each.name for each in categories]
    check = partial(_check, {each.type for each in types}, known)
    checks = {f"preferences.{name}": each for name, each in given_checks(body, check).items()}
    given = {name.removeprefix("preferences."): each for name, each in collect(checks).items()}
    return lambda old: _update(old, **given)


def _update(
    old: DevicePreferences,
    *,
    enabled: bool | UnsetType | None = UNSET,
    categories: Mapping[str, bool | None] | UnsetType | None = UNSET,
    types: Mapping[str, bool | None] | UnsetType | None = UNSET,
    quiet_hours: QuietHours | UnsetType | None = UNSET,
) -> DevicePreferences:
    """Return the preferences with the given values merged in; None resets to the default.

    Only values that differ from the default are kept.
    """
    hours = old.quiet_hours if isinstance(quiet_hours, UnsetType) else quiet_hours
    return DevicePreferences(
        enabled=old.enabled if isinstance(enabled, UnsetType) else enabled is not False,
        categories=_merge(old.categories, categories),
        types=_merge(old.types, types),
        # Without a quiet hour they change nothing.
        quiet_hours=hours if hours and any(hours) else None,
    )


def _merge(old: Mapping[K, bool], new: Mapping[K, bool | None] | UnsetType | None) -> dict[K, bool]:
    if isinstance(new, UnsetType):
        return dict(old)
    if new is None:
        return {}
    return {key: False for key, on in {**old, **new}.items() if on is False}


def view_preferences(device: Device) -> DevicePreferencesView:
    """Return the effective preferences of a device."""
    preferences = device.preferences
    hours = preferences.quiet_hours
    return DevicePreferencesView(
        enabled=preferences.enabled,
        categories={**dict.fromkeys(map(str, Category), True), **preferences.categories},
        types=preferences.types,
        quiet_hours=None if hours is None else list(hours),
    )


def _check(known: Collection[str], categories: Collection[str], name: str, value: Any) -> Any:
    match name:
        case "categories" if value is not None:
            return check_toggle_names("preferences.categories", value, categories)
        case "types" if value is not None:
            return _check_types(value, known)
        case "quiet_hours" if value is not None:
            return check_quiet_hours(value)
        case _:
            return value


def _check_types(toggles: Toggles, known: Collection[str]) -> Toggles:
    if len(toggles) > TYPES_LIMIT:
        raise ValueError(f"must name at most {TYPES_LIMIT:,} types")
    # That of a type that was deleted can still be reset.
    unknown = [name for name, on in toggles.items() if on is not None and name not in known]
    if unknown:
        place = "preferences.types"
        raise InvalidFields(
            *(FieldFault(f"{place}.{name}", "there is no such type") for name in unknown)
        )
    return toggles
