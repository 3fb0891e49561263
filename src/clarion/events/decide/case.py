"""Everything that the rules look at, read before they run."""

from __future__ import annotations

import msgspec

from clarion.catalog.model import Channel, NotificationType, Overflow, Priority
from clarion.events.model import EarlierNotification
from clarion.people.model import User
from clarion.push.model import Device


class Limit(msgspec.Struct, frozen=True):
    """How many notifications a user gets in an hour, and how many of them are used."""

    id: str
    per_hour: int
    overflow: Overflow
    used: int


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One event for one user at one time; `user` is None if there is no such user."""

    now: int
    type: NotificationType
    priority: Priority
    channels: tuple[Channel, ...]
    templates: frozenset[Channel]  # the channels for which the type has a template
    available: frozenset[Channel]  # the channels that this installation has
    expires_at: int | None
    is_read: bool = False  # since it began to wait
    user: User | None
    addresses: frozenset[Channel] = frozenset()  # the channels for which the user has an address
    devices: tuple[Device, ...] = ()  # the user's valid devices that a push can reach
    has_topic_devices: bool = False  # others get it as a message to their topic
    earlier: EarlierNotification | None = None
    limits: tuple[Limit, ...] = ()
    next_hour_at: int = 0

    @property
    def recipient(self) -> User:
        """The user, after the first rule: nothing is sent to one who does not exist."""
        assert self.user is not None  # noqa: S101
        return self.user
