"""What a channel is given and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from clarion.catalog.model import Priority
from clarion.events.model import Content
from clarion.people.model import User


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A notification ready to leave the house. `id` is the same at every try."""

    id: str
    notification_id: str
    user: User
    type: str
    priority: Priority
    subject: str | None
    body: str
    content: Content
    count: int
    expires_at: int | None
    attempt: int  # 1 for the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The channel took it. `response` is what the provider said, for the log of attempts."""

    response: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Not now; again after a while, if the channel knows how long."""

    error_code: str
    error_message: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Never: the same again would be refused again."""

    error_code: str
    error_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The address is no more."""

    error_code: str
    error_message: str


Outcome = Delivered | Retry | Rejected | Gone
