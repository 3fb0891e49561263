"""The audit log of an app, or of the whole server: a list to search."""

from __future__ import annotations

from clarion.access.model import Role, Scope
from clarion.admin.forms import show_list
from clarion.admin.page import AdminPage, app_page
from clarion.admin.paths import ROOT
from clarion.admin.people import find_one, read_names
from clarion.admin.permissions import may_open
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 50
_APPS_SHOWN = _NAMED = 100
_DAYS = ("since", "until")
_FILTERS = ("action", "actor_id", "user_id", *_DAYS)


async def show_audit(visit: Visit) -> Response:
    """Show the newest entries first; the page of the server includes those without an app."""
    chosen = {name: visit.query.get(name, "").strip() for name in _FILTERS}
    is_of_app = "app_id" in visit.parts
    if is_of_app and chosen["user_id"]:
        person = await find_one(visit, chosen["user_id"])
        chosen["user_id"] = person["id"] if person else chosen["user_id"]
    query = {
        name: _read_day(text) if name in _DAYS else text or None for name, text in chosen.items()
    }
    is_verified = "verify" in visit.query and not is_of_app
    apps = (await visit.get("apps", limit=_APPS_SHOWN))["items"]
    return await show_list(
        visit,
        "audit.html",
        "audit",
        query={"limit": _SHOWN, **query},
        filter=chosen,
        app_names={each["id"]: each["name"] for each in apps},
        names=await read_names(visit, [chosen["user_id"]]) | await _name_targets(visit),
        is_of_app=is_of_app,
        verified=await visit.get("audit", "verification") if is_verified else None,
    )


async def _name_targets(visit: Visit) -> dict[str, str]:
    """Return the labels of the keys of the app, or the usernames, as far as the role sees them."""
    app_id = visit.parts.get("app_id")
    if app_id and may_open(Scope.KEYS_READ, visit.caller, app_id):
        keys = (await visit.get("keys", limit=_NAMED))["items"]
        return {each["id"]: each["label"] for each in keys if each["label"]}
    if not app_id and may_open(Role.ADMIN, visit.caller, None):
        accounts = (await visit.get("admin", "administrators", limit=_NAMED))["items"]
        return {each["id"]: each["username"] for each in accounts}
    return {}


def _read_day(text: str) -> str | None:
    """Return the beginning of a day, as the field of a browser names it."""
    return f"{text}T00:00:00Z" if text else None


PAGES = (
    app_page("GET", "/audit", show_audit, Scope.AUDIT_READ),
    AdminPage("GET", f"{ROOT}/audit-log", show_audit, Role.VIEWER),
)
