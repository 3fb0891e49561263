"""The port of a channel."""

from __future__ import annotations

from typing import Protocol

from clarion.channels.model import Outcome, OutgoingMessage
from clarion.people.model import User


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
