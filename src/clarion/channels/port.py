"""The ports of the channels: stored providers, and what sends through one or to our own devices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from clarion.catalog.model import Channel
from clarion.channels.gateway import PushDevices as PushDevices
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import Address, Outcome, OutgoingMessage, Provider, Try
from clarion.clock import Clock
from clarion.people.model import User

# Called with app and channel after a change by which messages that wait could be sent.
OnProviderChanged = Callable[[str, Channel], Awaitable[None]]


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
        """Delete a provider; False if it does not exist."""

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
    # Whether a user, given as app and user id, was deleted or erased a moment ago.
    is_gone: Callable[[str, str], bool] = lambda _app_id, _user_id: False


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
        """Close the connections; attempts in progress may fail."""


class AppChannels(Protocol):
    """The channels of one app, as its providers are now."""

    @property
    def available(self) -> frozenset[Channel]:
        """The channels by which the app can send: the inbox, push, and those with a provider."""

    @property
    def platforms(self) -> frozenset[str]:
        """The platforms of devices that push reaches."""

    def find_addresses(self, channel: Channel, type_name: str, user: User) -> tuple[Address, ...]:
        """Return the addresses of a user for messages of a type, on a channel without devices."""

    async def send(
        self, channel: Channel, message: OutgoingMessage, only: str | None = None
    ) -> tuple[Try, ...]:
        """Try the providers in their order, until one takes or refuses the message.

        `only` names the one provider that may be tried, if it still exists.
        """


class Channels(Protocol):
    """The channels of the apps."""

    async def find(self, app_id: str) -> AppChannels:
        """Return the channels of an app. May be some seconds old on other nodes."""

    async def disable(
        self, app_id: str, channel: Channel, name: str, reason: str, since: int | None = None
    ) -> None:
        """Make a provider inactive, log it, and show why.

        With `since`, only if it took no message since then, as far as this node knows.
        """
