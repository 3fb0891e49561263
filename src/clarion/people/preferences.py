"""The effective preferences of a user and their sources. Only non-default values are stored."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from clarion.catalog.model import (
    MANDATORY_CATEGORIES,
    CategoryDefinition,
    Channel,
    NotificationType,
)
from clarion.people.model import (
    DEFAULT_LANGUAGE,
    DEFAULT_QUIET_HOURS,
    DEFAULT_TIMEZONE,
    Preferences,
    User,
)
from clarion.people.model.quiet_hours import QuietHours

ChannelToggles = Mapping[Channel, bool | None]
T = TypeVar("T")
# The channels that have a toggle for each type.
TOGGLED_CHANNELS = (Channel.IN_APP, Channel.PUSH, Channel.EMAIL, Channel.SMS)


class PreferenceSource(StrEnum):
    """Where an effective value comes from."""

    DEFAULT = "default"
    USER = "user"
    CATEGORY = "category"  # the user has turned the whole category off
    TYPE = "type"  # the type is inactive, or users cannot disable it
    MANDATORY = "mandatory"  # toggles of the category are ignored, as of safety and security


class Setting(msgspec.Struct, Generic[T], frozen=True):
    """An effective value, its source, and what the user has set, if anything."""

    value: T
    source: PreferenceSource
    set_to: T | None = None


def get_default(channel: Channel) -> bool:
    """Return whether a channel is on by default: all but SMS, which is opt-in."""
    return channel is not Channel.SMS


def update(
    preferences: Preferences,
    *,
    quiet_hours: QuietHours | UnsetType | None = UNSET,
    categories: Mapping[str, bool | None] | UnsetType | None = UNSET,
    types: Mapping[str, ChannelToggles | None] | UnsetType | None = UNSET,
) -> Preferences:
    """Return the preferences with the given values merged in; None resets to the default."""
    old = preferences
    return drop_defaults(
        Preferences(
            quiet_hours=old.quiet_hours if quiet_hours is UNSET else quiet_hours,
            categories=old.categories if categories is UNSET else merge(old.categories, categories),
            types=old.types if types is UNSET else merge_types(old.types, types),
        )
    )


def replace_preferences(
    definitions: Mapping[str, NotificationType], old: Preferences, /, **given: Any
) -> Preferences:
    """Return preferences with only the given values.

    A toggle that equals the effective value both before and after was probably read, not chosen,
    and keeps its setting. Otherwise, storing a read response again would turn off every type of a
    category that is off.
    """
    new = update(Preferences(), **given)
    as_set = Preferences(categories=new.categories, types=old.types)
    types: dict[str, dict[Channel, bool]] = {}
    for name, toggles in merge_types({}, given.get("types") or {}).items():
        for channel, on in toggles.items():
            settings = [explain_channel(each, definitions[name], channel) for each in (old, as_set)]
            is_read = all(setting.value is on for setting in settings)
            set_to = settings[0].set_to if is_read else on
            if set_to is not None:
                types.setdefault(name, {})[channel] = set_to
    return drop_defaults(msgspec.structs.replace(new, types=types))


def drop_defaults(preferences: Preferences) -> Preferences:
    """Return the preferences without values that equal their default."""
    types = {
        name: {channel: on for channel, on in toggles.items() if on is not get_default(channel)}
        for name, toggles in preferences.types.items()
    }
    hours = preferences.quiet_hours
    return Preferences(
        quiet_hours=None if hours == DEFAULT_QUIET_HOURS else hours,
        categories={category: on for category, on in preferences.categories.items() if not on},
        types={name: toggles for name, toggles in types.items() if toggles},
    )


def merge(old: Mapping[T, bool], new: Mapping[T, bool | None] | None) -> dict[T, bool]:
    """Return the old toggles updated by the new ones; None removes one, or all."""
    if new is None:
        return {}
    return {key: on for key, on in {**old, **new}.items() if on is not None}


def merge_types(
    old: Mapping[str, Mapping[Channel, bool]], new: Mapping[str, ChannelToggles | None] | None
) -> dict[str, dict[Channel, bool]]:
    """Return the old toggles of each type updated by the new ones; None removes those of a type."""
    if new is None:
        return {}
    unchanged = {name: dict(toggles) for name, toggles in old.items() if name not in new}
    return unchanged | {name: merge(old.get(name, {}), toggles) for name, toggles in new.items()}


def explain_language(user: User) -> Setting[str]:
    return _explain(user.language, DEFAULT_LANGUAGE)


def explain_timezone(user: User) -> Setting[str]:
    return _explain(user.timezone, DEFAULT_TIMEZONE)


def explain_quiet_hours(preferences: Preferences) -> Setting[QuietHours]:
    return _explain(preferences.quiet_hours or DEFAULT_QUIET_HOURS, DEFAULT_QUIET_HOURS)


def explain_category(preferences: Preferences, category: CategoryDefinition) -> Setting[bool]:
    """Return whether a category is on, and why."""
    set_to = preferences.categories.get(category.name)
    if not category.user_can_disable:
        return Setting(value=True, source=PreferenceSource.MANDATORY, set_to=set_to)
    if set_to is None:
        return Setting(value=True, source=PreferenceSource.DEFAULT)
    return Setting(set_to, PreferenceSource.USER, set_to)


def explain_channel(
    preferences: Preferences, definition: NotificationType, channel: Channel
) -> Setting[bool]:
    """Return whether a type may be sent by a channel, and why."""
    set_to = preferences.types.get(definition.type, {}).get(channel)
    if not definition.is_active:
        return Setting(value=False, source=PreferenceSource.TYPE, set_to=set_to)
    if definition.category in MANDATORY_CATEGORIES:
        return Setting(value=True, source=PreferenceSource.MANDATORY, set_to=set_to)
    if not definition.user_can_disable:
        return Setting(value=True, source=PreferenceSource.TYPE, set_to=set_to)
    if not preferences.categories.get(definition.category, True):
        return Setting(value=False, source=PreferenceSource.CATEGORY, set_to=set_to)
    if set_to is None:
        return Setting(get_default(channel), PreferenceSource.DEFAULT)
    return Setting(set_to, PreferenceSource.USER, set_to)


def _explain(value: T, default: T) -> Setting[T]:
    if value == default:
        return Setting(value, PreferenceSource.DEFAULT)
    return Setting(value, PreferenceSource.USER, value)
