"""Everything a rule may look at, read once before the rules are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.model.notification import Channel, NotificationType, Preferences, Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who would hear of it."""

    id: str
    is_active: bool
    timezone: str
    preferences: Preferences
    addresses: frozenset[Channel]  # the channels for which there is an address
    devices: int = 0
    devices_on: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An earlier notification with the same dedupe key, within the window."""

    notification_id: str
    is_unread: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One event for one person at one moment."""

    now: int
    type: NotificationType
    priority: Priority
    channels: tuple[Channel, ...]
    templates: frozenset[Channel]  # the channels for which the type has a template
    expires_at: int | None
    person: Person | None
    earlier: Earlier | None = None
    used_this_hour: int = 0
    next_hour_at: int = 0
    digest_due_at: int | None = None
