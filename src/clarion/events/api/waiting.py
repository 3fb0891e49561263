"""What waits for a person: held until their quiet hours end, or collected for a digest."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get

from clarion.access.model import Scope
from clarion.catalog.model import Channel
from clarion.events.model import Delivery, Notification
from clarion.events.port import Deliveries, Facts
from clarion.http.callers import owner_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, to_wire


class WaitingChannel(msgspec.Struct):
    """A channel on which it waits: why, and until when."""

    channel: str
    status: str
    reason: str
    rule: str
    until: str | None


class WaitingView(msgspec.Struct):
    """A notification that waits on one channel or more."""

    notification_id: str
    type: str
    created_at: str | None
    channels: list[WaitingChannel]


@get(
    ["/v1/users/{user_id:str}/waiting", "/v1/me/waiting"],
    summary="See what waits for a person",
    tags=["Notifications"],
)
async def list_waiting(
    request: Request[Any, Any, Any],
    deliveries: Injected[Deliveries],
    facts: Injected[Facts],
    user_id: str | None = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[WaitingView]:
    """Return what is held or collected, oldest first."""
    app_id, whose = owner_of(request, user_id, Scope.NOTIFICATIONS_READ)
    # Enough for a page even if every notification waits on every channel, and one more.
    rows = check_limit(limit) * len(Channel) + 1
    found = await deliveries.waiting(app_id, whose, after=after, limit=rows)
    groups = _group(found)
    page = dict(list(groups.items())[:limit])
    known = await facts.notifications(app_id, [whose], page)
    views = [_view(known[each], page[each]) for each in page if each in known]
    return Items(views, list(page)[-1] if len(groups) > limit else None)


def _group(found: tuple[Delivery, ...]) -> dict[str, list[Delivery]]:
    groups: dict[str, list[Delivery]] = {}
    for each in found:
        groups.setdefault(each.notification_id, []).append(each)
    return groups


def _view(notification: Notification, deliveries: list[Delivery]) -> WaitingView:
    channels = [
        WaitingChannel(
            each.channel.value, each.status.value, each.reason.value, each.rule, to_wire(each.until)
        )
        for each in deliveries
    ]
    created_at = to_wire(notification.created_at)
    return WaitingView(notification.id, notification.type, created_at, channels)
