"""Users and their preferences."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from clarion.catalog.model import Channel
from clarion.people.model.quiet_hours import QuietHours
from clarion.people.profile import Profile

DEFAULT_LANGUAGE = "en"
DEFAULT_TIMEZONE = "UTC"
# 22:00 to 07:00 in the user's time zone: one flag for each hour of the day.
DEFAULT_QUIET_HOURS: QuietHours = tuple(hour >= 22 or hour < 7 for hour in range(24))  # noqa: PLR2004


class Preferences(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The preferences that a user has set; all others have their default."""

    quiet_hours: QuietHours | None = None
    categories: dict[str, bool] = {}
    types: dict[str, dict[Channel, bool]] = {}


class UserStatus(StrEnum):
    """Whether a user receives notifications."""

    ACTIVE = "active"
    INACTIVE = "inactive"


class Consent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a user consented to something, when, where, and to which text."""

    granted: bool
    at: int
    source: str | None = None
    version: str | None = None


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
    # By these a segment may select users.
    attributes: dict[str, object] = field(default_factory=dict)
    # Kept for the app, in any form.
    metadata: dict[str, object] = field(default_factory=dict)
    # By the subject of the consent: "newsletter".
    consent: dict[str, Consent] = field(default_factory=dict)
    profile: Profile = field(default_factory=Profile)
    preferences: Preferences = field(default_factory=Preferences)
    last_login_at: int | None = None
    last_seen_at: int | None = None
    created_at: int
    updated_at: int
    # A deleted user is kept for a while, and is in no list and no audience.
    deleted_at: int | None = None


class UserFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of users: all conditions that are not None must hold.

    A range includes `after` and excludes `before`.
    """

    ids: tuple[str, ...] | None = None
    # The beginning; capitals A to Z make no difference.
    name: str | None = None
    email: str | None = None
    status: UserStatus | None = None
    tag: str | None = None
    language: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    last_seen_after: int | None = None
    last_seen_before: int | None = None


class StoredUser(msgspec.Struct, frozen=True):
    """A user who was written, and the user as before; None if there was none."""

    user: User
    before: User | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The users of an app that a filter selects."""

    app_id: str
    name: str
    filter: str
    created_at: int
    updated_at: int
