"""The apps of the server: a list, and the form that creates one."""

from __future__ import annotations

from clarion.access.model import Role
from clarion.admin.forms import show_again
from clarion.admin.operations import Refused
from clarion.admin.page import AdminPage
from clarion.admin.paths import ROOT
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 100
_PATH = f"{ROOT}/apps"


async def list_apps(visit: Visit) -> Response:
    return await visit.render("apps.html", **await visit.get_page("apps", limit=_SHOWN))


async def show_new_app(visit: Visit) -> Response:
    return await visit.render("new_app.html", given={})


async def create_app(visit: Visit) -> Response:
    """Create an app, and show its secrets this once."""
    given = {name: visit.field(name).strip() for name in ("name", "bundle_id")}
    try:
        made = await visit.post("apps", body=given)
    except Refused as refused:
        return await show_again(visit, "new_app.html", refused, given=given)
    return await visit.render("created_app.html", made=made)


PAGES = (
    AdminPage("GET", _PATH, list_apps),
    AdminPage("GET", f"{ROOT}/new-app", show_new_app, Role.ADMIN),
    AdminPage("POST", f"{ROOT}/new-app", create_app, Role.ADMIN),
)
