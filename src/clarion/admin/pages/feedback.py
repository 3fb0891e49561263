"""Feedback: tokens of devices that are no longer valid."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 100


async def list_feedback(visit: Visit) -> Response:
    """Show tokens from a day on, the oldest first, as the API has them."""
    chosen, after = {"since": visit.query.get("since", "").strip()}, visit.query.get("after")
    since = f"{chosen['since']}T00:00:00Z" if chosen["since"] else None
    values: dict[str, Any] = {"filter": chosen, "after": after}
    try:
        page = await visit.get("feedback", since=since, limit=_SHOWN, after=after)
    except Refused as refused:
        return await show_again(visit, "feedback.html", refused, items=[], next=None, **values)
    return await visit.render("feedback.html", items=page["items"], next=page["next"], **values)


PAGES = (app_page("GET", "/feedback", list_feedback, Scope.DEVICES_READ),)
