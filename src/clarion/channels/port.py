"""The ports of the channels: stored providers, and what sends through one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clarion.catalog.model import Channel
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import Outcome, OutgoingMessage, Provider
from clarion.clock import Clock
from clarion.people.model import User


class Providers(Protocol):
    """The providers of the apps. Secrets are stored sealed, for this app and provider only."""

    async def put(self, provider: Provider) -> tuple[Provider, bool]:
        """Create or replace a provider; return it as stored, and whether it is new.

        Secrets that are not given stay as they are, and so does `created_at`.
        """

    async def get(self, app_id: str, channel: Channel, name: str) -> Provider | None:
        """Return a provider with its secrets, or None."""

    async def list(self, app_id: str) -> tuple[Provider, ...]:
        """Return the providers of an app by channel, position and name, at most 1,000."""

    async def delete(self, app_id: str, channel: Channel, name: str) -> bool:
        """Delete a provider; False if there is none."""

    async def disable(
        self, app_id: str, channel: Channel, name: str, reason: str, now: int
    ) -> bool:
        """Make a provider inactive, with the reason; False if it is not active."""

    async def take_daily(
        self, app_id: str, channel: Channel, name: str, *, cap: int, now: int
    ) -> bool:
        """Count one message of a provider in this day (UTC); False if the cap is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderContext:
    """What every sender may use."""

    clock: Clock
    http: HttpClients
    public_url: str  # of this installation, without a slash at the end
    # From app, user, type and channel: the link that turns the type off for the channel.
    unsubscribe_url: Callable[[str, str, str, Channel], str] | None = None


class Sender(Protocol):
    """Sends messages through one provider.

    It is opened with the provider's configuration when the first message is sent, shared by all
    messages, and closed when the provider changes or the server stops. It pools its connections.

    `send` makes one attempt and returns its outcome; it may be called many times at once. The
    caller limits the time and the number of attempts, counts failures, and retries. A `send` that
    raises an error counts as `Unknown`, as does one that is cancelled for taking too long.
    The same message may be sent again, since an outcome can be lost: its id lets the provider
    recognise the repeat.
    """

    async def send(self, message: OutgoingMessage) -> Outcome:
        """Make one attempt to deliver, and return its outcome."""

    async def close(self) -> None:
        """Close the connections; attempts under way may fail."""


class ChannelProvider(Protocol):
    """Sends messages over one channel.

    An attempt that takes more than 20 seconds is cancelled and counts as `Retry`, as does one that
    raises an error. The same message may be delivered again, since an outcome can be lost: its id
    lets the provider recognise the repeat.
    """

    name: str

    def can_reach(self, user: User) -> bool:
        """Whether the user has an address for this channel."""

    async def deliver(self, message: OutgoingMessage) -> Outcome:
        """Make one attempt to deliver, and return its outcome."""
