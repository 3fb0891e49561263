"""The port of a channel."""

from __future__ import annotations

from typing import Protocol

from clarion.channels.model import Outcome, OutgoingMessage
from clarion.people.model import User


class ChannelProvider(Protocol):
    """A channel that takes notifications out of the house.

    It answers in time, whatever the provider does: the caller's limit ends it, as a `Retry`. What
    it raises is a fault of its own and counts as a failed try. It may be asked again for the same
    message, for an answer can be lost: the message's id is what the provider can tell a repeat by.
    """

    name: str

    def can_reach(self, user: User) -> bool:
        """Whether there is an address for a person."""
        ...

    async def deliver(self, message: OutgoingMessage) -> Outcome:
        """Try once to deliver; say what came of it."""
        ...
