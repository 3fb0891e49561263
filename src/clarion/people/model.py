"""Users and their preferences."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from clarion.catalog.model import Category, Channel

# 22:00 to 07:00, by the hour of the person's own clock.
DEFAULT_QUIET_HOURS = tuple(hour >= 22 or hour < 7 for hour in range(24))  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a person has set; what is not here has its default."""

    quiet_hours: tuple[bool, ...] | None = None
    categories: dict[Category, bool] = field(default_factory=dict)
    types: dict[str, dict[Channel, bool]] = field(default_factory=dict)


class UserStatus(StrEnum):
    """Whether a person hears anything at all."""

    ACTIVE = "active"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person of an app."""

    app_id: str
    id: str
    name: str | None = None
    email: str | None = None
    phone: str | None = None
    language: str = "en"
    timezone: str = "UTC"
    status: UserStatus = UserStatus.ACTIVE
    tags: tuple[str, ...] = ()
    attributes: dict[str, object] = field(default_factory=dict)
    preferences: Preferences = field(default_factory=Preferences)
    created_at: int
    updated_at: int
