"""The ports of what happened: notifications, their deliveries, and reports about these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from clarion.catalog.model import Channel
from clarion.history.model import Attempt, Delivery, Notification
from clarion.pages import Page


class NotificationReader(Protocol):
    """Reads notifications."""

    async def find_many(
        self, app_id: str, user_ids: Iterable[str], ids: Iterable[str]
    ) -> dict[str, Notification]:
        """Return the notifications of some users, by id, in one read."""

    async def get(self, app_id: str, notification_id: str) -> Notification | None:
        """Return the notification of any user, or None."""

    async def list_newest(
        self, app_id: str, *, before: tuple[str, str] | None, limit: int
    ) -> tuple[Notification, ...]:
        """Return notifications of the newest events first, before an event id and an id."""

    async def list_newest_of_user(
        self, app_id: str, user_id: str, *, before: str | None, limit: int
    ) -> tuple[Notification, ...]:
        """Return all notifications of a user, newest first, before an id."""

    async def list_newest_failed(
        self, app_id: str, *, before: str | None, limit: int
    ) -> tuple[Notification, ...]:
        """Return notifications with a failed delivery, newest first, before an id."""

    async def list_of_event(
        self, app_id: str, event_id: str, *, after: str | None, limit: int
    ) -> Page[Notification]:
        """Return the notifications of an event, in the order of their ids."""


class Deliveries(Protocol):
    """The deliveries of notifications, one for each channel."""

    async def find_many(self, app_id: str, ids: Iterable[str]) -> dict[str, tuple[Delivery, ...]]:
        """Return the deliveries of notifications, by notification id, in one read."""

    async def find_worked_on(
        self, app_id: str, ids: Iterable[str]
    ) -> dict[str, tuple[Delivery, ...]]:
        """Return the deliveries on which there is or was work, by notification id, in one read.

        These are all but those that ended when they were decided.
        """

    async def list_attempts(self, notification_id: str) -> tuple[Attempt, ...]:
        """Return the newest 1,000 attempts to deliver a notification, in their order."""

    async def list_attempts_of_channel(
        self, notification_id: str, channel: Channel
    ) -> tuple[Attempt, ...]:
        """Return all attempts on a channel, in their order.

        An address has two rounds of the schedule of retries at most, for each provider.
        """

    async def list_collected(
        self, app_id: str, user_id: str, digest: str, limit: int
    ) -> tuple[Delivery, ...]:
        """Return the deliveries that wait for a digest, newest first."""

    async def list_waiting(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> tuple[Delivery, ...]:
        """Return a user's held and collected deliveries, in the order of notification ids."""


class DeliveryReports(Protocol):
    """What providers report about deliveries that they have accepted.

    A report counts only while the delivery is queued or sent, and its last attempt is not older
    than `since`. Otherwise the methods return False, and nothing has changed.
    """

    async def confirm(
        self, app_id: str, notification_id: str, channel: Channel, *, since: int, now: int
    ) -> bool:
        """Record that a delivery arrived."""

    async def fail(
        self,
        app_id: str,
        notification_id: str,
        channel: Channel,
        *,
        error_code: str,
        error_message: str,
        since: int,
        now: int,
    ) -> bool:
        """Record that a delivery did not arrive."""
