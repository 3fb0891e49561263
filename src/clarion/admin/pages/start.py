"""`/admin` itself, and the choice of an app."""

from __future__ import annotations

from clarion.admin.page import AdminPage
from clarion.admin.paths import ROOT, path_of
from clarion.admin.visit import Visit
from clarion.http.asgi import Response


async def start(visit: Visit) -> Response:
    """Lead to the overview of the first app."""
    apps = (await visit.get("apps", limit=1))["items"]
    if not apps:
        return await visit.render("no_app.html")
    return visit.redirect(path_of("apps", apps[0]["id"], "overview"))


async def choose_app(visit: Visit) -> Response:
    """Lead to the page of another app that is open for this one."""
    page = visit.query.get("page", "overview")
    return visit.redirect(path_of("apps", visit.query.get("app", ""), page))


PAGES = (
    AdminPage("GET", ROOT, start),
    AdminPage("GET", f"{ROOT}/choose", choose_app),
)
