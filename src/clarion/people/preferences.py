"""What a person has set, what holds, and why. Only what differs from the default is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from clarion.catalog.model import MANDATORY_CATEGORIES, Channel
from clarion.people.model import DEFAULT_QUIET_HOURS, Preferences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clarion.catalog.model import Category, NotificationType
    from clarion.people.model import User

T = TypeVar("T")
DEFAULT_LANGUAGE = "en"
DEFAULT_TIMEZONE = "UTC"
# The channels whose settings a person is shown.
SHOWN = (Channel.IN_APP, Channel.PUSH, Channel.EMAIL, Channel.SMS)


class Source(StrEnum):
    """Where a value comes from."""

    DEFAULT = "default"
    USER = "user"
    CATEGORY = "category"  # the person has switched the whole category off
    TYPE = "type"  # the type is not in use, or cannot be switched off
    MANDATORY = "mandatory"  # safety and security: toggles do not count


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A value that holds, its source, and what the person has set, if anything."""

    value: T
    source: Source
    set_to: T | None = None


def get_default(channel: Channel) -> bool:
    """Return whether a channel is on for who has set nothing: all but SMS, which is opt-in."""
    return channel is not Channel.SMS


def keep_differences(preferences: Preferences) -> Preferences:
    """Return the preferences without what says the same as the default."""
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
    """Return the old toggles with the new ones over them; None takes one back, or all."""
    if new is None:
        return {}
    return {key: on for key, on in {**old, **new}.items() if on is not None}


def merge_types(
    old: Mapping[str, Mapping[Channel, bool]],
    new: Mapping[str, Mapping[Channel, bool | None] | None] | None,
) -> dict[str, dict[Channel, bool]]:
    """Do the same with the toggles of every type."""
    if new is None:
        return {}
    untouched = {name: dict(toggles) for name, toggles in old.items() if name not in new}
    return untouched | {name: merge(old.get(name, {}), toggles) for name, toggles in new.items()}


def explain_language(user: User) -> Setting[str]:
    """Return the language and its source."""
    return _explain(user.language, DEFAULT_LANGUAGE)


def explain_timezone(user: User) -> Setting[str]:
    """Return the time zone and its source."""
    return _explain(user.timezone, DEFAULT_TIMEZONE)


def explain_quiet_hours(preferences: Preferences) -> Setting[tuple[bool, ...]]:
    """Return the quiet hours and their source."""
    return _explain(preferences.quiet_hours or DEFAULT_QUIET_HOURS, DEFAULT_QUIET_HOURS)


def explain_category(preferences: Preferences, category: Category) -> Setting[bool]:
    """Return whether a category is on, and why."""
    set_to = preferences.categories.get(category)
    if category in MANDATORY_CATEGORIES:
        return Setting(True, Source.MANDATORY, set_to)  # noqa: FBT003
    if set_to is None:
        return Setting(True, Source.DEFAULT)  # noqa: FBT003
    return Setting(set_to, Source.USER, set_to)


def explain_channel(
    preferences: Preferences, kind: NotificationType, channel: Channel
) -> Setting[bool]:
    """Return whether a type may come by a channel, and why."""
    set_to = preferences.types.get(kind.type, {}).get(channel)
    if not kind.is_active:
        return Setting(False, Source.TYPE, set_to)  # noqa: FBT003
    if kind.category in MANDATORY_CATEGORIES:
        return Setting(True, Source.MANDATORY, set_to)  # noqa: FBT003
    if not kind.user_can_disable:
        return Setting(True, Source.TYPE, set_to)  # noqa: FBT003
    if not explain_category(preferences, kind.category).value:
        return Setting(False, Source.CATEGORY, set_to)  # noqa: FBT003
    if set_to is None:
        return Setting(get_default(channel), Source.DEFAULT)
    return Setting(set_to, Source.USER, set_to)


def get_toggle(preferences: Preferences, kind: NotificationType, channel: Channel) -> bool:
    """Return where the toggle of a type for a channel stands, whatever its category says."""
    if kind.category in MANDATORY_CATEGORIES or not kind.user_can_disable:
        return True
    return preferences.types.get(kind.type, {}).get(channel, get_default(channel))


def _explain(value: T, default: T) -> Setting[T]:
    if value == default:
        return Setting(value, Source.DEFAULT)
    return Setting(value, Source.USER, value)
