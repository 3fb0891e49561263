"""Providers, the message that one gets, and the outcomes it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import msgspec

from clarion.catalog.model import Channel
from clarion.history.model import Notification
from clarion.people.model import User

S = TypeVar("S", bound=msgspec.Struct)
K = TypeVar("K", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """How an app sends over a channel. Several of a channel are tried in their order."""

    app_id: str
    channel: Channel
    name: str
    kind: str
    settings: dict[str, object] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)  # stored sealed
    position: int = 0  # the lower is tried first
    is_active: bool = True
    timeout_s: int = 10
    concurrency: int = 32
    daily_cap: int | None = None
    is_sandbox: bool = False
    disabled_reason: str | None = None  # why Clarion made it inactive
    created_at: int
    updated_at: int


def secrets_context(app_id: str, channel: str, name: str) -> str:
    """Return the context for which the secrets of a provider are sealed."""
    return f"provider/{app_id}/{channel}/{name}"


class Configuration(msgspec.Struct, Generic[S, K], frozen=True, kw_only=True):
    """The decoded and checked settings and secrets with which a sender is opened."""

    app_id: str
    channel: Channel
    name: str
    settings: S
    secrets: K
    timeout_s: float
    concurrency: int


class Address(NamedTuple):
    """Where a message goes.

    `id` distinguishes the addresses of one user on a channel: the id of a device, or the name of a
    webhook; it is empty if there can be one only. `platform` is that of a device.
    """

    id: str
    value: str
    platform: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A rendered notification for one address. `id` is the same for every attempt."""

    id: str
    notification: Notification
    user: User
    address: Address
    subject: str | None
    body: str
    count: int
    attempt: int  # 1 for the first
    is_html: bool = False  # the body; its values are escaped
    language: str | None = None  # of the template
    user_can_disable: bool = True  # the type: if not, there is nothing to unsubscribe from


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """The provider accepted the message, and reports nothing more; `response` is stored."""

    response: str | None = None


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The provider accepted the message, and will report when it is delivered."""

    response: str | None = None


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The provider accepts our credentials; nothing was sent."""

    response: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed; the subclass says what follows."""

    error_code: str
    error_message: str


class Retry(Failure, frozen=True, kw_only=True):
    """The provider did not accept the message. Another one is tried, or this one again.

    `after_s` is the wait that the provider asks for.
    """

    after_s: float | None = None


class NotTried(Retry, frozen=True, kw_only=True):
    """No attempt was made: the circuit is open, a cap is reached, or all slots are taken."""


# The codes of attempts that were not made although nothing is wrong: they are made later.
BUSY, DAILY_CAP, ASKED_TO_WAIT = "busy", "daily_cap", "told_to_wait"
WAITING_CODES = frozenset({BUSY, DAILY_CAP, ASKED_TO_WAIT})


class Unknown(Failure, frozen=True, kw_only=True):
    """The provider may have accepted the message: only it is tried again, with the same id."""


class Rejected(Failure, frozen=True, kw_only=True):
    """The provider refused the message; another attempt would be refused, too."""


class Gone(Failure, frozen=True, kw_only=True):
    """The address no longer exists."""


class Misconfigured(Failure, frozen=True, kw_only=True):
    """The provider refuses everything: its settings or credentials are wrong."""


Outcome = Delivered | Sent | Retry | Unknown | Rejected | Gone | Misconfigured


class Try(NamedTuple):
    """One provider that was tried for a message, and its outcome."""

    provider: str
    outcome: Outcome
