"""One notification over HTTP: what it is, how it went on each channel, and its story."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Controller, Request, get

from clarion.access.model import Scope
from clarion.catalog.model import Channel
from clarion.errors import NotFound
from clarion.events.model import Attempt, Delivery, DeliveryStatus, Notification
from clarion.events.port import Deliveries, Events, Facts
from clarion.events.status import sum_up
from clarion.events.timeline import Happening, tell_story
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, to_wire
from clarion.inbox.model import Item, to_item


class NotificationView(Item, kw_only=True):
    """A notification, whose it is, and its state: the sum of its deliveries."""

    user_id: str
    event_id: str
    status: str
    is_shown: bool
    folded_into: str | None


class AttemptView(msgspec.Struct):
    """One try to deliver."""

    number: int
    device_id: str | None
    status: str
    provider_response: str | None
    error_code: str | None
    error_message: str | None
    attempted_at: str | None


class DeliveryView(msgspec.Struct):
    """What became of a notification on one channel."""

    channel: str
    status: str
    reason: str
    rule: str
    until: str | None
    attempt_count: int
    provider: str | None
    sent_at: str | None
    delivered_at: str | None
    read_at: str | None
    last_attempt_at: str | None
    error_code: str | None
    error_message: str | None
    attempts: list[AttemptView]


class DeliveriesView(msgspec.Struct):
    """All channels of a notification."""

    items: list[DeliveryView]


class HappeningView(msgspec.Struct):
    """One line of the story."""

    at: str | None
    what: str
    channel: str | None
    reason: str | None
    rule: str | None
    until: str | None
    detail: str | None


class TimelineView(msgspec.Struct):
    """The story of a notification, oldest first."""

    items: list[HappeningView]


class NotificationsController(Controller):
    """Notifications, by their own ids."""

    path = "/v1/notifications/{notification_id:str}"
    tags = ("Notifications",)

    @get(summary="See a notification")
    async def see(
        self,
        request: Request[Any, Any, Any],
        notification_id: str,
        facts: Injected[Facts],
        deliveries: Injected[Deliveries],
    ) -> NotificationView:
        """Return a notification and its state."""
        found = await _find(request, notification_id, facts)
        return _view_whole(found, await _deliveries(found, deliveries))

    @get("/deliveries", summary="See how it went on each channel")
    async def list_deliveries(
        self,
        request: Request[Any, Any, Any],
        notification_id: str,
        facts: Injected[Facts],
        deliveries: Injected[Deliveries],
    ) -> DeliveriesView:
        """Return the deliveries with their attempts."""
        found = await _find(request, notification_id, facts)
        attempts = await deliveries.attempts(found.id)
        mine = await _deliveries(found, deliveries)
        return DeliveriesView([_view(each, found, attempts) for each in mine])

    @get("/timeline", summary="Tell its story")
    async def tell(
        self,
        request: Request[Any, Any, Any],
        notification_id: str,
        facts: Injected[Facts],
        deliveries: Injected[Deliveries],
        events: Injected[Events],
    ) -> TimelineView:
        """Return everything that happened to it, oldest first."""
        found = await _find(request, notification_id, facts)
        story = tell_story(
            await events.get(found.app_id, found.event_id),
            found,
            await _deliveries(found, deliveries),
            await deliveries.attempts(found.id),
        )
        return TimelineView([_happening(each) for each in story])


@get(
    "/v1/events/{event_id:str}/notifications",
    summary="See what an event came to",
    tags=["Events"],
)
async def list_of_event(
    request: Request[Any, Any, Any],
    event_id: str,
    facts: Injected[Facts],
    deliveries: Injected[Deliveries],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[NotificationView]:
    """Return a notification for each person the event was for, also if nothing was sent."""
    caller = app_of(request, Scope.NOTIFICATIONS_READ)
    page = await facts.of_event(caller.app_id, event_id, after=after, limit=check_limit(limit))
    known = await deliveries.find_many(caller.app_id, [each.id for each in page.items])
    views = [_view_whole(each, known.get(each.id, ())) for each in page.items]
    return Items(views, page.next)


async def _find(
    request: Request[Any, Any, Any], notification_id: str, facts: Facts
) -> Notification:
    caller = app_of(request, Scope.NOTIFICATIONS_READ)
    found = await facts.find(caller.app_id, notification_id)
    if found is None:
        raise NotFound
    return found


async def _deliveries(found: Notification, deliveries: Deliveries) -> tuple[Delivery, ...]:
    return (await deliveries.find_many(found.app_id, [found.id])).get(found.id, ())


def _view_whole(notification: Notification, deliveries: tuple[Delivery, ...]) -> NotificationView:
    return NotificationView(
        **msgspec.structs.asdict(to_item(notification)),
        user_id=notification.user_id,
        event_id=notification.event_id,
        status=sum_up(deliveries).value,
        is_shown=notification.is_shown,
        folded_into=notification.folded_into,
    )


def _view(
    delivery: Delivery, notification: Notification, attempts: tuple[Attempt, ...]
) -> DeliveryView:
    is_inbox = delivery.channel is Channel.IN_APP
    return DeliveryView(
        channel=delivery.channel.value,
        status=delivery.status.value,
        reason=delivery.reason.value,
        rule=delivery.rule,
        until=to_wire(delivery.until),
        attempt_count=delivery.attempt_count,
        provider=delivery.provider,
        sent_at=to_wire(delivery.sent_at),
        delivered_at=to_wire(delivery.delivered_at),
        read_at=to_wire(notification.read_at) if is_inbox else None,
        last_attempt_at=to_wire(delivery.last_attempt_at),
        error_code=delivery.error_code,
        error_message=delivery.error_message,
        attempts=_attempts(delivery, attempts),
    )


def _attempts(delivery: Delivery, attempts: tuple[Attempt, ...]) -> list[AttemptView]:
    if delivery.channel is Channel.IN_APP and delivery.status is DeliveryStatus.DELIVERED:
        # The one attempt was the commit that brought it into the inbox; it is not stored twice.
        at = to_wire(delivery.delivered_at)
        return [AttemptView(1, None, "delivered", None, None, None, at)]
    return [_attempt(each) for each in attempts if each.channel is delivery.channel]


def _attempt(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        device_id=attempt.device_id or None,
        status=attempt.status,
        provider_response=attempt.provider_response,
        error_code=attempt.error_code,
        error_message=attempt.error_message,
        attempted_at=to_wire(attempt.attempted_at),
    )


def _happening(happening: Happening) -> HappeningView:
    return HappeningView(
        at=to_wire(happening.at),
        what=happening.what,
        channel=happening.channel.value if happening.channel else None,
        reason=happening.reason.value if happening.reason else None,
        rule=happening.rule,
        until=to_wire(happening.until),
        detail=happening.detail,
    )
