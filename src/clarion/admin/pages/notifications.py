"""Notifications: a list to search, and the timeline of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clarion.access.model import Scope
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.people import find_people, read_names
from clarion.admin.reasons import REASONS
from clarion.admin.timelines import describe_deliveries, describe_timeline
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.history.model import DeliveryStatus
from clarion.http.asgi import Response

_SHOWN = 50
_PEOPLE_SHOWN = 20
_TYPES_SHOWN = 100
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILTERS = ("type", "delivery_status", "reason")
# What becomes of these is not known yet.
_UNFINISHED = frozenset({"created", "queued", "processing"})


async def list_notifications(visit: Visit) -> Response:
    """Show the newest notifications; an id or an address redirects to its page."""
    chosen = {name: visit.query.get(name, "") for name in ("q", *_FILTERS)}
    wanted, after = chosen["q"].strip(), visit.query.get("after")
    if _ID.fullmatch(wanted):
        return await _open_by_id(visit, wanted)
    query: dict[str, str | int | None] = {name: chosen[name] or None for name in _FILTERS}
    people = await find_people(visit, wanted, _PEOPLE_SHOWN) if wanted else []
    if len(people) > 1 and people[0]["id"] != wanted:
        return await _show_list(visit, {"items": [], "next": None}, chosen, after, people=people)
    user_id = people[0]["id"] if people else wanted or None
    page = await visit.get("notifications", user_id=user_id, limit=_SHOWN, after=after, **query)
    return await _show_list(visit, page, chosen, after)


async def _open_by_id(visit: Visit, id_: str) -> Response:
    """Redirect to the notification with this id, or else to the event."""
    try:
        await visit.get("notifications", id_)
    except Refused as refused:
        if refused.problem.code != NotFound.code:
            raise
    else:
        return visit.redirect(visit.app_path("notifications", id_))
    return visit.redirect(visit.app_path("events", id_))


async def _show_list(
    visit: Visit,
    page: dict[str, Any],
    chosen: dict[str, str],
    after: str | None,
    people: Sequence[dict[str, Any]] = (),
) -> Response:
    types = (await visit.get("types", limit=_TYPES_SHOWN))["items"]
    return await visit.render(
        "notifications.html",
        items=page["items"],
        next=page["next"],
        after=after,
        filter=chosen,
        people=people,
        names=await read_names(visit, [each["user_id"] for each in page["items"]]),
        type_options=[("", "Any"), *((each["type"], each["type"]) for each in types)],
        status_options=[("", "Anything"), *((each.value, each.value) for each in DeliveryStatus)],
        reason_options=[("", "Anything"), *REASONS.items()],
    )


async def show_notification(visit: Visit) -> Response:
    id_ = visit.parts["notification_id"]
    item = await visit.get("notifications", id_)
    timeline = (await visit.get("notifications", id_, "timeline"))["items"]
    deliveries = (await visit.get("notifications", id_, "deliveries"))["items"]
    return await visit.render(
        "notification.html",
        item=item,
        names=await read_names(visit, [item["user_id"]]),
        timeline=describe_timeline(timeline),
        deliveries=describe_deliveries(deliveries),
        is_open=item["status"] in _UNFINISHED,
    )


PAGES = (
    app_page("GET", "/notifications", list_notifications, Scope.NOTIFICATIONS_READ),
    app_page(
        "GET", "/notifications/{notification_id}", show_notification, Scope.NOTIFICATIONS_READ
    ),
)
