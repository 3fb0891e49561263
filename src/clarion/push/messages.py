"""Messages to devices, those that wait and all of them, however they are stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from clarion.pages import Page
from clarion.push.model import Message, MessageReason, MessageRecord, MessageStatus, PushPriority


class Messages(Protocol):
    """Messages to devices that wait to be delivered."""

    async def add(
        self, message: Message, status: MessageStatus, reason: MessageReason | None
    ) -> bool:
        """Store a message once; False if the device had one with the same id within 24 hours.

        Of the device's waiting messages with the same collapse id, all but the newest expire as
        `collapsed`: usually the older ones, or this one if a newer one was stored before it.
        Messages of notifications and other messages do not collapse each other.

        When the last message of a notification ends, whichever method ends it, so does its push
        delivery if that is `sent`: as `delivered` if a device acknowledged one, else as `expired`
        or `failed`.
        """

    async def waiting(
        self,
        device_id: str,
        *,
        now: int,
        limit: int,
        least: PushPriority = PushPriority.LOW,
        skip: Collection[str] = (),
    ) -> tuple[Message, ...]:
        """Return stored messages that wait and have not expired: by priority, then oldest first.

        Those with a lower priority than `least` or an id in `skip` are left out.
        """

    async def count_waiting(self, device_id: str, *, now: int, limit: int) -> int:
        """Return how many stored messages wait and have not expired, counted up to `limit`."""

    async def find_waiting(self, device_ids: Collection[str], now: int) -> frozenset[str]:
        """Return which of these devices (at most 500) have waiting messages, in one read."""

    async def find_recent(
        self, app_ids: Collection[str], *, after: int, now: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """Return sequence and device of messages that wait after a sequence, in order, in one read.

        At most `limit`, for the devices of some apps.
        """

    async def acknowledge(
        self, pairs: Sequence[tuple[str, str]], now: int, notifying: Sequence[Message] = ()
    ) -> None:
        """Mark messages delivered, each given as device and message id.

        Ids that are not the device's, or do not wait, change nothing. Those that are part of
        notifications are given whole, as `notifying`: their deliveries and the attempts of their
        devices are delivered, too, in the same unit.
        """

    async def fail(self, device_id: str, message_id: str, now: int) -> None:
        """Fail a message as `unregistered`; if it does not wait, nothing is changed."""

    async def cancel(self, device_id: str, message_id: str, now: int) -> bool:
        """Expire a message as `cancelled`; False if it does not wait, or is of a notification."""

    async def trim(self, device_id: str, keep: int, now: int) -> int:
        """Expire waiting messages beyond `keep` as `overflow`: lowest priority first, then oldest.

        Returns how many were expired.
        """

    async def expire(self, now: int, limit: int) -> int:
        """Expire messages that are past `expires_at`, at most `limit`; return how many."""


class History(Protocol):
    """All messages to devices with their status. Outlives the devices."""

    async def prune(self, app_id: str, before: int, limit: int) -> int:
        """Delete finished messages accepted before a time, at most `limit`; return how many."""

    async def list(
        self, app_id: str, *, device_id: str, after: str | None, limit: int
    ) -> Page[MessageRecord]:
        """Return the messages of a device, newest first."""

    async def get(self, app_id: str, device_id: str, message_id: str) -> MessageRecord | None:
        """Return one message, or None."""
