"""Everything a rule may look at, read once before the rules are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.catalog.model import Channel, NotificationType, Overflow, Priority
    from clarion.events.model import Earlier
    from clarion.people.model import Preferences


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


@dataclass(frozen=True, slots=True)
class Limit:
    """How many a person gets in an hour, of a type, a category or in all, and has had."""

    id: str
    per_hour: int
    overflow: Overflow
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One event for one person at one moment."""

    now: int
    type: NotificationType
    priority: Priority
    channels: tuple[Channel, ...]
    templates: frozenset[Channel]  # the channels for which the type has a template
    available: frozenset[Channel]  # the channels that this installation has
    expires_at: int | None
    person: Person | None
    earlier: Earlier | None = None
    limits: tuple[Limit, ...] = ()
    next_hour_at: int = 0
