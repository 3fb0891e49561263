"""The preferences of a device. Only values that differ from the default are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec import UNSET, UnsetType

from clarion.people.model.quiet_hours import QuietHours
from clarion.push.model import DevicePreferences

K = TypeVar("K")


def update(
    old: DevicePreferences,
    *,
    enabled: bool | UnsetType | None = UNSET,
    categories: Mapping[str, bool | None] | UnsetType | None = UNSET,
    types: Mapping[str, bool | None] | UnsetType | None = UNSET,
    quiet_hours: QuietHours | UnsetType | None = UNSET,
) -> DevicePreferences:
    """Return the preferences with the given values merged in; None resets to the default."""
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
