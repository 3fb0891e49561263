"""The notifications that wait for a user: held, or collected for a digest."""

from __future__ import annotations

from typing import Any

from litestar import Request, get

from clarion.access.model import Scope
from clarion.catalog.model import Channel
from clarion.events.model import Delivery, DeliveryStatus, Notification, ReasonCode
from clarion.events.port import Deliveries, NotificationReader
from clarion.http.callers import owner_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit
from clarion.http.views import Timestamp, View


class WaitingChannel(View):
    """A channel on which a notification waits: why, and until when."""

    channel: Channel
    status: DeliveryStatus
    reason: ReasonCode
    rule: str
    until: Timestamp | None


class WaitingView(View):
    """A notification that waits on one or more channels."""

    notification_id: str
    type: str
    created_at: Timestamp
    channels: list[WaitingChannel]


@get(
    ["/v1/users/{user_id:str}/waiting", "/v1/me/waiting"],
    summary="List waiting notifications",
    tags=["Notifications"],
)
async def list_waiting(
    request: Request[Any, Any, Any],
    deliveries: Injected[Deliveries],
    notifications: Injected[NotificationReader],
    user_id: str | None = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[WaitingView]:
    """Return the notifications that are held or collected, oldest first."""
    app_id, owner_id = owner_of(request, user_id, Scope.NOTIFICATIONS_READ)
    # Enough for a page even if every notification waits on every channel, and one more.
    rows = check_limit(limit) * len(Channel) + 1
    found = await deliveries.list_waiting(app_id, owner_id, after=after, limit=rows)
    groups = _group(found)
    page = dict(list(groups.items())[:limit])
    known = await notifications.find_many(app_id, [owner_id], page)
    views = [_view(known[each], page[each]) for each in page if each in known]
    return Items(views, list(page)[-1] if len(groups) > limit else None)


ROUTES = (list_waiting,)


def _group(found: tuple[Delivery, ...]) -> dict[str, list[Delivery]]:
    groups: dict[str, list[Delivery]] = {}
    for each in found:
        groups.setdefault(each.notification_id, []).append(each)
    return groups


def _view(notification: Notification, deliveries: list[Delivery]) -> WaitingView:
    return WaitingView.of(
        notification,
        notification_id=notification.id,
        channels=[WaitingChannel.of(each) for each in deliveries],
    )
