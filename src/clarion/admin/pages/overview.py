"""The live overview of an app."""

from __future__ import annotations

from clarion.access.model import Scope
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.http.asgi import Response


async def show_overview(visit: Visit) -> Response:
    return await visit.render("overview.html", stats=await visit.get("stats"))


PAGES = (app_page("GET", "/overview", show_overview, Scope.STATS_READ),)
