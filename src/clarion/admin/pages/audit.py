"""The audit log of an app, or of the whole server: a list to search."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Role, Scope
from clarion.admin.forms import show_again
from clarion.admin.operations import Refused
from clarion.admin.page import Page, app_page
from clarion.admin.paths import ROOT
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 50
_DAYS = ("since", "until")
_FILTERS = ("action", "actor_id", "user_id", *_DAYS)


async def show_audit(visit: Visit) -> Response:
    """Show the newest entries first; a server has also those that belong to no app."""
    chosen = {name: visit.query.get(name, "").strip() for name in _FILTERS}
    query: dict[str, str | int | None] = {
        name: _read_day(text) if name in _DAYS else text or None for name, text in chosen.items()
    }
    after, is_of_app = visit.query.get("after"), "app_id" in visit.parts
    values: dict[str, Any] = {
        "filter": chosen,
        "after": after,
        "is_of_app": is_of_app,
        "verified": await _verify(visit) if "verify" in visit.query and not is_of_app else None,
    }
    try:
        page = await visit.get("audit", limit=_SHOWN, after=after, **query)
    except Refused as refused:
        return await show_again(visit, "audit.html", refused, items=[], next=None, **values)
    return await visit.render("audit.html", items=page["items"], next=page["next"], **values)


async def _verify(visit: Visit) -> dict[str, Any]:
    found: dict[str, Any] = await visit.get("audit", "verification")
    return found


def _read_day(text: str) -> str | None:
    """Return the beginning of a day, as the field of a browser names it."""
    return f"{text}T00:00:00Z" if text else None


PAGES = (
    app_page("GET", "/audit", show_audit, Scope.AUDIT_READ),
    Page("GET", f"{ROOT}/audit-log", show_audit, Role.VIEWER),
)
