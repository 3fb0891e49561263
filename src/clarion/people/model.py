"""Users and their preferences."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from clarion.catalog.model import Category, Channel
from clarion.quiet_hours import QuietHours

DEFAULT_LANGUAGE = "en"
DEFAULT_TIMEZONE = "UTC"
# 22:00 to 07:00 in the user's time zone: one flag for each hour of the day.
DEFAULT_QUIET_HOURS: QuietHours = tuple(hour >= 22 or hour < 7 for hour in range(24))  # noqa: PLR2004


class Preferences(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user has set; everything else has its default."""

    quiet_hours: QuietHours | None = None
    categories: dict[Category, bool] = {}
    types: dict[str, dict[Channel, bool]] = {}


class UserStatus(StrEnum):
    """Whether a user receives notifications."""

    ACTIVE = "active"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An end user of an app."""

    app_id: str
    id: str
    name: str | None = None
    email: str | None = None
    phone: str | None = None
    language: str = DEFAULT_LANGUAGE
    timezone: str = DEFAULT_TIMEZONE
    status: UserStatus = UserStatus.ACTIVE
    tags: tuple[str, ...] = ()
    attributes: dict[str, object] = field(default_factory=dict)
    preferences: Preferences = field(default_factory=Preferences)
    created_at: int
    updated_at: int
