"""Notifications over HTTP: their status, their deliveries and attempts, and their timeline."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Request, get

from clarion.access.model import Scope
from clarion.catalog.model import Category, Channel
from clarion.errors import NotFound
from clarion.events.model import (
    Actor,
    Attempt,
    Delivery,
    DeliveryStatus,
    Notification,
    NotificationStatus,
    ReasonCode,
    Target,
)
from clarion.events.port import Deliveries, Events, NotificationReader
from clarion.events.status import summarize
from clarion.events.timeline import build_timeline
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, to_wire
from clarion.http.views import Timestamp, View


class NotificationView(View):
    """A notification; `status` is the summary of its deliveries."""

    id: str
    type: str
    category: Category
    priority: str
    title: str | None
    body: str
    deeplink: str | None
    image_url: str | None
    actor: Actor | None
    target: Target | None
    data: dict[str, Any]
    count: int
    read_at: Timestamp | None
    dismissed_at: Timestamp | None
    created_at: Timestamp
    sequence: int
    user_id: str
    event_id: str
    status: NotificationStatus
    is_shown: bool
    folded_into: str | None


class AttemptView(View):
    """An attempt to deliver."""

    number: int
    device_id: str | None
    status: str
    provider_response: str | None
    error_code: str | None
    error_message: str | None
    attempted_at: Timestamp


class DeliveryView(View):
    """The delivery of a notification on one channel."""

    channel: Channel
    status: DeliveryStatus
    reason: ReasonCode
    rule: str
    until: Timestamp | None
    attempt_count: int
    provider: str | None
    sent_at: Timestamp | None
    delivered_at: Timestamp | None
    read_at: Timestamp | None
    last_attempt_at: Timestamp | None
    error_code: str | None
    error_message: str | None
    attempts: list[AttemptView]


class DeliveriesView(View):
    """The deliveries of a notification, one for each channel."""

    items: list[DeliveryView]


class TimelineEntryView(View):
    """One entry of a timeline."""

    at: Timestamp
    what: str
    channel: Channel | None
    reason: ReasonCode | None
    rule: str | None
    until: Timestamp | None
    detail: str | None


class TimelineView(View):
    """The timeline of a notification, oldest entry first."""

    items: list[TimelineEntryView]


class NotificationsController(Controller):
    """Notifications, by their ids."""

    path = "/v1/notifications/{notification_id:str}"
    tags = ("Notifications",)

    @get(summary="Get a notification")
    async def get_notification(
        self,
        request: Request[Any, Any, Any],
        notification_id: str,
        notifications: Injected[NotificationReader],
        deliveries: Injected[Deliveries],
    ) -> NotificationView:
        """Return a notification and its status."""
        found = await _find(request, notification_id, notifications)
        return _view(found, await _deliveries_of(found, deliveries))

    @get("/deliveries", summary="List the deliveries of a notification")
    async def list_deliveries(
        self,
        request: Request[Any, Any, Any],
        notification_id: str,
        notifications: Injected[NotificationReader],
        deliveries: Injected[Deliveries],
    ) -> DeliveriesView:
        """Return the delivery on each channel, with its attempts."""
        found = await _find(request, notification_id, notifications)
        attempts = await deliveries.list_attempts(found.id)
        own = await _deliveries_of(found, deliveries)
        return DeliveriesView(items=[_view_delivery(each, found, attempts) for each in own])

    @get("/timeline", summary="Get the timeline of a notification")
    async def get_timeline(
        self,
        request: Request[Any, Any, Any],
        notification_id: str,
        notifications: Injected[NotificationReader],
        deliveries: Injected[Deliveries],
        events: Injected[Events],
    ) -> TimelineView:
        """Return all decisions, attempts and results, oldest first."""
        found = await _find(request, notification_id, notifications)
        timeline = build_timeline(
            await events.get(found.app_id, found.event_id),
            found,
            await _deliveries_of(found, deliveries),
            await deliveries.list_attempts(found.id),
        )
        return TimelineView(items=[TimelineEntryView.of(each) for each in timeline])


@get(
    "/v1/events/{event_id:str}/notifications",
    summary="List the notifications of an event",
    tags=["Events"],
)
async def list_of_event(
    request: Request[Any, Any, Any],
    event_id: str,
    notifications: Injected[NotificationReader],
    deliveries: Injected[Deliveries],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[NotificationView]:
    """Return a notification for each recipient of the event, even if nothing was sent."""
    app_id = app_of(request, Scope.NOTIFICATIONS_READ).app_id
    page = await notifications.list_of_event(
        app_id, event_id, after=after, limit=check_limit(limit)
    )
    known = await deliveries.find_many(app_id, [each.id for each in page.items])
    return Items([_view(each, known.get(each.id, ())) for each in page.items], page.next)


ROUTES = (NotificationsController, list_of_event)


async def _find(
    request: Request[Any, Any, Any], notification_id: str, notifications: NotificationReader
) -> Notification:
    caller = app_of(request, Scope.NOTIFICATIONS_READ)
    found = await notifications.get(caller.app_id, notification_id)
    if found is None:
        raise NotFound
    return found


async def _deliveries_of(found: Notification, deliveries: Deliveries) -> tuple[Delivery, ...]:
    return (await deliveries.find_many(found.app_id, [found.id])).get(found.id, ())


def _view(notification: Notification, deliveries: tuple[Delivery, ...]) -> NotificationView:
    content = notification.content
    return NotificationView.of(
        notification,
        priority=notification.priority.name.lower(),
        deeplink=content.deeplink,
        image_url=content.image_url,
        actor=content.actor,
        target=content.target,
        data=content.data,
        status=summarize(deliveries),
    )


def _view_delivery(
    delivery: Delivery, notification: Notification, attempts: tuple[Attempt, ...]
) -> DeliveryView:
    is_inbox = delivery.channel is Channel.IN_APP
    return DeliveryView.of(
        delivery,
        read_at=to_wire(notification.read_at) if is_inbox else None,
        attempts=_view_attempts(delivery, attempts),
    )


def _view_attempts(delivery: Delivery, attempts: tuple[Attempt, ...]) -> list[AttemptView]:
    if delivery.channel is Channel.IN_APP and delivery.delivered_at is not None:
        # Its one attempt was the commit that added it to the inbox; that is not stored twice.
        attempts = (
            Attempt(
                notification_id=delivery.notification_id,
                channel=delivery.channel,
                number=1,
                status=delivery.status.value,
                attempted_at=delivery.delivered_at,
            ),
        )
    return [
        AttemptView.of(each, device_id=each.device_id or None)
        for each in attempts
        if each.channel is delivery.channel
    ]
