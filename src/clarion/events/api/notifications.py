"""Notifications over HTTP: their status, deliveries and timeline, and those that wait."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Controller, get
from litestar.di import Provide
from litestar.params import Parameter, QueryParameter

from clarion.access.model import Scope
from clarion.catalog.model import Channel
from clarion.errors import NotFound
from clarion.events.listing import NotificationFilter, list_notifications
from clarion.events.port import Events
from clarion.events.status import summarize
from clarion.events.timeline import build_timeline
from clarion.fields import EventId, NotificationId, UserId
from clarion.history.model import (
    Attempt,
    Delivery,
    DeliveryStatus,
    Notification,
    NotificationStatus,
    ReasonCode,
)
from clarion.history.port import Deliveries, NotificationReader
from clarion.http.bodies import collect
from clarion.http.callers import ApiRequest, app_of, owner_of
from clarion.http.dependencies import CheckPresent, Injected
from clarion.http.parameters import After, Limit
from clarion.http.shapes import Items, check_choice, check_limit, to_wire
from clarion.http.views import Timestamp, View
from clarion.inbox.views import InboxItem, to_item
from clarion.pages import PAGE_DEFAULT

OfUser = Annotated[str | None, Parameter(description="Only those of this user.")]
OfType = Annotated[str | None, QueryParameter(name="type", description="Only those of this type.")]
InStatus = Annotated[
    str | None,
    Parameter(
        description="Only those with a delivery in this status, like `failed`.",
        schema_extra={"enum": list(DeliveryStatus)},
    ),
]
ForReason = Annotated[
    str | None,
    Parameter(
        description="Only those with a delivery for this reason.",
        schema_extra={"enum": list(ReasonCode)},
    ),
]


class NotificationView(InboxItem, View, kw_only=True):
    """A notification; `status` is the summary of its deliveries."""

    user_id: str
    """The user who is notified."""
    event_id: str
    """The event that it came from."""
    status: NotificationStatus
    """The summary of its deliveries."""
    is_shown: bool
    """Whether it is in the inbox of the user."""
    folded_into: str | None
    """The notification that counts this one as well; null if none does."""


class AttemptView(View):
    """An attempt to deliver."""

    number: int
    """The number of the attempt, from 1."""
    device_id: str | None
    """The device it went to, if the channel is `push`."""
    provider: str | None
    """The name of the provider that was used."""
    status: str
    """What came of it, like `delivered` or `failed`."""
    provider_response: str | None
    """What the provider answered, shortened."""
    error_code: str | None
    """The code of the error, as the provider gives it."""
    error_message: str | None
    """What went wrong."""
    attempted_at: Timestamp
    """When it was tried."""


class WaitingChannel(View):
    """The status of a notification on a channel, the reason, and until when it waits."""

    channel: Channel
    """The channel by which it is delivered."""
    status: DeliveryStatus
    """How far the delivery is."""
    reason: ReasonCode
    """Why it has this status."""
    rule: str
    """The rule that decided."""
    until: Timestamp | None
    """Until when it waits; null if it does not, or until a preference changes."""


class DeliveryView(WaitingChannel, kw_only=True):
    """The delivery of a notification on one channel."""

    attempt_count: int
    """How often it was tried."""
    provider: str | None
    """The name of the provider that was used last."""
    sent_at: Timestamp | None
    """When a provider accepted it."""
    delivered_at: Timestamp | None
    """When it reached the user or their device."""
    read_at: Timestamp | None
    """When the user read it in the inbox."""
    last_attempt_at: Timestamp | None
    """When it was tried last."""
    error_code: str | None
    """The code of the last error."""
    error_message: str | None
    """What went wrong last."""
    attempts: list[AttemptView]
    """All attempts, oldest first."""


class DeliveriesView(View):
    """The deliveries of a notification, one for each channel."""

    items: list[DeliveryView]
    """One delivery for each channel."""


class ListedNotification(NotificationView, kw_only=True):
    """A notification in a list, with the latest decision on each channel."""

    deliveries: list[WaitingChannel]
    """The latest decision on each channel."""


class TimelineEntryView(View):
    """One entry of a timeline."""

    at: Timestamp
    """When it happened."""
    what: str
    """What happened, like `accepted`, `hold`, `attempt 1: delivered` or `read`."""
    channel: Channel | None
    """The channel it happened on, if it was one."""
    reason: ReasonCode | None
    """Why, as a stable word."""
    rule: str | None
    """The rule that decided."""
    until: Timestamp | None
    """Until when it waits."""
    detail: str | None
    """More about it, for people."""


class TimelineView(View):
    """The timeline of a notification, oldest entry first."""

    items: list[TimelineEntryView]
    """The entries, oldest first."""


class HeldChannel(WaitingChannel, kw_only=True):
    """A channel on which a notification waits."""

    dead_letter: str | None
    """The event to replay, if sending has failed permanently; otherwise null."""


class WaitingView(View):
    """A notification that waits on one or more channels."""

    notification_id: str
    """The notification that waits."""
    type: str
    """The notification type."""
    created_at: Timestamp
    """When the notification was created."""
    channels: list[HeldChannel]
    """The channels it waits on."""


async def _find(
    request: ApiRequest,
    notification_id: NotificationId,
    notifications: Injected[NotificationReader],
) -> Notification:
    caller = app_of(request, Scope.NOTIFICATIONS_READ)
    found = await notifications.get(caller.app_id, notification_id)
    if found is None:
        raise NotFound
    return found


class NotificationsController(Controller):
    """Notifications, by their ids."""

    path = "/v1/notifications/{notification_id:str}"
    tags = ("Notifications",)
    dependencies = {"notification": Provide(_find)}  # noqa: RUF012 - Litestar only reads it

    @get(summary="Get a notification")
    async def get_notification(
        self, notification: Injected[Notification], deliveries: Injected[Deliveries]
    ) -> NotificationView:
        """Return a notification and its status."""
        return _view(notification, await _deliveries_of(notification, deliveries))

    @get("/deliveries", summary="List the deliveries of a notification")
    async def list_deliveries(
        self, notification: Injected[Notification], deliveries: Injected[Deliveries]
    ) -> DeliveriesView:
        """Return the delivery on each channel, with its attempts.

        Of more than 1,000 attempts on all channels, the newest are returned.
        """
        own = await _deliveries_of(notification, deliveries)
        # Read last, so that the attempt that ended a delivery is never missing.
        attempts = await deliveries.list_attempts(notification.id)
        return DeliveriesView(items=[_view_delivery(each, notification, attempts) for each in own])

    @get("/timeline", summary="Get the timeline of a notification")
    async def get_timeline(
        self,
        notification: Injected[Notification],
        deliveries: Injected[Deliveries],
        events: Injected[Events],
    ) -> TimelineView:
        """Return all decisions, attempts and results, oldest first.

        Of more than 1,000 attempts, the newest are returned.
        """
        timeline = build_timeline(
            await events.get(notification.app_id, notification.event_id),
            notification,
            await _deliveries_of(notification, deliveries),
            await deliveries.list_attempts(notification.id),
        )
        return TimelineView(items=[TimelineEntryView.of(each) for each in timeline])


async def _read_filter(
    user_id: OfUser = None,
    type_name: OfType = None,
    delivery_status: InStatus = None,
    reason: ForReason = None,
) -> NotificationFilter:
    choices: dict[str, tuple[Any, str | None]] = {
        "delivery_status": (DeliveryStatus, delivery_status),
        "reason": (ReasonCode, reason),
    }
    checks = {
        name: partial(check_choice, choice, text)
        for name, (choice, text) in choices.items()
        if text is not None
    }
    return NotificationFilter(user_id=user_id, type=type_name, **collect(checks))


@get(
    "/v1/notifications",
    summary="List the notifications of the app",
    tags=["Notifications"],
    dependencies={"wanted": Provide(_read_filter)},
)
async def list_all(
    request: ApiRequest,
    wanted: Injected[NotificationFilter],
    notifications: Injected[NotificationReader],
    deliveries: Injected[Deliveries],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[ListedNotification]:
    """Return notifications, newest first, with their result on each channel.

    A page may have fewer items than `limit`, even none, and a cursor: then there may be more.
    """
    app_id, size = app_of(request, Scope.NOTIFICATIONS_READ).app_id, check_limit(limit)
    page = await list_notifications(
        notifications, deliveries, app_id, wanted, after=after, limit=size
    )
    return Items([_view_listed(*each) for each in page.items], page.next)


_OF_EVENT = "/v1/events/{event_id:str}/notifications"


@get(_OF_EVENT, summary="List the notifications of an event", tags=["Events"])
async def list_of_event(
    request: ApiRequest,
    event_id: EventId,
    notifications: Injected[NotificationReader],
    deliveries: Injected[Deliveries],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[NotificationView]:
    """Return a notification for each recipient of the event, even if nothing was sent."""
    app_id, size = app_of(request, Scope.NOTIFICATIONS_READ).app_id, check_limit(limit)
    page = await notifications.list_of_event(app_id, event_id, after=after, limit=size)
    known = await deliveries.find_many(app_id, [each.id for each in page.items])
    return Items([_view(each, known.get(each.id, ())) for each in page.items], page.next)


@get(
    ["/v1/users/{user_id:str}/waiting", "/v1/me/waiting"],
    summary="List waiting notifications",
    tags=["Notifications"],
)
async def list_waiting(
    request: ApiRequest,
    deliveries: Injected[Deliveries],
    notifications: Injected[NotificationReader],
    events: Injected[Events],
    check_present: Injected[CheckPresent],
    user_id: UserId | None = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[WaitingView]:
    """Return the notifications that are held or collected, oldest first."""
    app_id, owner_id = owner_of(request, user_id, Scope.NOTIFICATIONS_READ)
    # Enough for a page even if every notification waits on every channel, and one more.
    rows = check_limit(limit) * len(Channel) + 1
    await check_present(app_id, owner_id, must_be_created=user_id is not None)
    groups: dict[str, list[HeldChannel]] = {}
    found = await deliveries.list_waiting(app_id, owner_id, after=after, limit=rows)
    dead = await events.find_dead(app_id, {each.waiting_job_id for each in found})
    for each in found:
        channel = HeldChannel.of(each, dead_letter=dead.get(each.waiting_job_id))
        groups.setdefault(each.notification_id, []).append(channel)
    page = list(groups)[:limit]
    known = await notifications.find_many(app_id, [owner_id], page)
    views = [
        WaitingView.of(known[each], notification_id=each, channels=groups[each])
        for each in page
        if each in known
    ]
    return Items(views, page[-1] if len(groups) > limit else None)


ROUTES = (NotificationsController, list_all, list_of_event, list_waiting)


async def _deliveries_of(found: Notification, deliveries: Deliveries) -> tuple[Delivery, ...]:
    return (await deliveries.find_many(found.app_id, [found.id])).get(found.id, ())


def _view(notification: Notification, deliveries: tuple[Delivery, ...]) -> NotificationView:
    item = msgspec.structs.asdict(to_item(notification))
    return NotificationView.of(notification, **item, status=summarize(deliveries))


def _view_listed(
    notification: Notification, deliveries: tuple[Delivery, ...]
) -> ListedNotification:
    shown = msgspec.structs.asdict(_view(notification, deliveries))
    return ListedNotification(**shown, deliveries=[WaitingChannel.of(each) for each in deliveries])


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
