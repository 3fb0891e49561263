"""Feedback: tokens of devices that are no longer valid."""

from __future__ import annotations

from clarion.access.model import Scope
from clarion.admin.forms import show_list
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 100


async def list_feedback(visit: Visit) -> Response:
    """Show tokens from a day on, the oldest first, as the API has them."""
    chosen = {"since": visit.query.get("since", "").strip()}
    since = f"{chosen['since']}T00:00:00Z" if chosen["since"] else None
    query = {"since": since, "limit": _SHOWN}
    return await show_list(visit, "feedback.html", "feedback", query=query, filter=chosen)


PAGES = (app_page("GET", "/feedback", list_feedback, Scope.DEVICES_READ),)
