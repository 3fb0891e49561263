"""The message that a provider gets, and the outcomes it returns."""

from __future__ import annotations

from dataclasses import dataclass

from clarion.events.model import Notification
from clarion.people.model import User


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A rendered notification for one user. `id` is the same for every attempt."""

    id: str
    notification: Notification
    user: User
    subject: str | None
    body: str
    count: int
    attempt: int  # 1 for the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The provider accepted the message; `response` is stored with the attempt."""

    response: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The attempt failed and is repeated, after `after_s` if the provider gives a time."""

    error_code: str
    error_message: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The provider refused the message; another attempt would be refused, too."""

    error_code: str
    error_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The address no longer exists."""

    error_code: str
    error_message: str


Outcome = Delivered | Retry | Rejected | Gone
