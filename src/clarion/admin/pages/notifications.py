"""Notifications: a list to search, and the timeline of one."""

from __future__ import annotations

import re
from typing import Any

from clarion.access.model import Scope
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.reasons import REASONS
from clarion.admin.timelines import describe_deliveries, describe_timeline
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.history.model import DeliveryStatus
from clarion.http.asgi import Response

_SHOWN = 50
_TYPES_SHOWN = 100
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILTERS = ("type", "delivery_status", "reason")
# What becomes of these is not known yet.
_UNFINISHED = frozenset({"created", "queued", "processing"})


async def list_notifications(visit: Visit) -> Response:
    """Show the newest; an id or an address leads to what has it."""
    chosen = {name: visit.query.get(name, "") for name in ("q", *_FILTERS)}
    wanted, after = chosen["q"].strip(), visit.query.get("after")
    if _ID.fullmatch(wanted):
        return await _find_by_id(visit, wanted, chosen)
    query: dict[str, str | int | None] = {name: chosen[name] or None for name in _FILTERS}
    user_id = await _find_user(visit, wanted) if wanted else None
    page = await visit.get("notifications", user_id=user_id, limit=_SHOWN, after=after, **query)
    return await _show_list(visit, page, chosen, after)


async def _find_by_id(visit: Visit, id_: str, chosen: dict[str, str]) -> Response:
    """Lead to the notification with an id, or else list those of the event that has it."""
    try:
        await visit.get("notifications", id_)
    except Refused as refused:
        if refused.problem.code != NotFound.code:
            raise
    else:
        return visit.redirect(visit.app_path("notifications", id_))
    after = visit.query.get("after")
    page = await visit.get("events", id_, "notifications", limit=_SHOWN, after=after)
    for item in page["items"]:
        found = await visit.get("notifications", item["id"], "deliveries")
        item["deliveries"] = found["items"]
    return await _show_list(visit, page, chosen, after)


async def _find_user(visit: Visit, wanted: str) -> str:
    if "@" not in wanted:
        return wanted
    found: list[dict[str, str]] = (await visit.get("users", email=wanted, limit=1))["items"]
    return found[0]["id"] if found else wanted


async def _show_list(
    visit: Visit, page: dict[str, Any], chosen: dict[str, str], after: str | None
) -> Response:
    types = (await visit.get("types", limit=_TYPES_SHOWN))["items"]
    return await visit.render(
        "notifications.html",
        items=page["items"],
        next=page["next"],
        after=after,
        filter=chosen,
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
