"""`/admin` itself, and the choice of an app."""

from __future__ import annotations

from clarion.admin.navigation import OF_APP
from clarion.admin.page import AdminPage
from clarion.admin.paths import ROOT, path_of
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_APPS_READ = 100


async def start(visit: Visit) -> Response:
    """Redirect to the app that was open last, or else to the first one."""
    apps = (await visit.get("apps", limit=_APPS_READ))["items"]
    if not apps:
        return await visit.render("no_app.html")
    known = [each["id"] for each in apps]
    last = visit.last_app
    return visit.redirect(path_of("apps", last if last in known and last else known[0]))


async def choose_app(visit: Visit) -> Response:
    """Redirect to the same page of another app."""
    page = visit.query.get("page", "")
    parts = [page] if page in {each.path for each in OF_APP} else []
    return visit.redirect(path_of("apps", visit.query.get("app", ""), *parts))


PAGES = (
    AdminPage("GET", ROOT, start),
    AdminPage("GET", f"{ROOT}/choose", choose_app),
)
