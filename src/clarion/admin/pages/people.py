"""People: a list to search, and everything about one of them."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import fault
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.preferences import describe_hours, find_changes
from clarion.admin.timelines import describe_reasons
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.http.asgi import Response

_SHOWN = 50
_FILTERS = ("status", "tag", "language")
_PROFILE = ("name", "email", "phone", "language", "timezone", "status")
_SERVER_FAULT = 500


async def list_people(visit: Visit) -> Response:
    """List users; an id leads to its user, an address finds the one that has it."""
    chosen = {name: visit.query.get(name, "").strip() for name in ("q", *_FILTERS)}
    wanted, after = chosen["q"], visit.query.get("after")
    is_address = "@" in wanted
    if wanted and not is_address and await _exists(visit, wanted):
        return visit.redirect(visit.app_path("people", wanted))
    query: dict[str, str | int | None] = {name: chosen[name] or None for name in _FILTERS}
    if is_address:
        query["email"] = wanted
    page: dict[str, Any] = {"items": [], "next": None}
    if not wanted or is_address:
        page = await visit.get("users", limit=_SHOWN, after=after, **query)
    return await visit.render(
        "people.html", items=page["items"], next=page["next"], after=after, filter=chosen
    )


async def _exists(visit: Visit, user_id: str) -> bool:
    try:
        await visit.get("users", user_id)
    except (Refused, NotFound) as error:
        if isinstance(error, Refused) and error.problem.code != NotFound.code:
            raise
        return False
    return True


async def show_profile(visit: Visit) -> Response:
    return await _render(visit, "person.html")


async def change_profile(visit: Visit) -> Response:
    """Update the fields of the form; an empty one is reset to its default."""
    body: dict[str, Any] = {name: visit.field(name).strip() or None for name in _PROFILE}
    body["tags"] = [tag for tag in map(str.strip, visit.field("tags").split(",")) if tag]
    try:
        await visit.call("PATCH", "users", visit.parts["user_id"], body=body)
    except Refused as refused:
        return await _show_again(visit, "person.html", refused, given=body)
    return visit.redirect(visit.path, notice="saved")


async def show_preferences(visit: Visit) -> Response:
    return await _render(visit, "person_preferences.html", **await _read_preferences(visit))


async def _read_preferences(visit: Visit) -> dict[str, Any]:
    user_id = visit.parts["user_id"]
    found = await visit.get("users", user_id, "preferences", explain="true")
    return {"preferences": found, "hours": describe_hours(found["quiet_hours"]["value"])}


async def change_preferences(visit: Visit) -> Response:
    """Set what differs from what is shown."""
    user_id = visit.parts["user_id"]
    before = await visit.get("users", user_id, "preferences", explain="true")
    body = find_changes(before, visit.form)
    try:
        await visit.call("PATCH", "users", user_id, "preferences", body=body)
    except Refused as refused:
        more = await _read_preferences(visit)
        return await _show_again(visit, "person_preferences.html", refused, **more)
    return visit.redirect(visit.path, notice="saved")


async def show_devices(visit: Visit) -> Response:
    page = await visit.get("users", visit.parts["user_id"], "devices", limit=_SHOWN)
    return await _render(visit, "person_devices.html", devices=page["items"])


async def show_inbox(visit: Visit) -> Response:
    after = visit.query.get("after")
    page = await visit.get(
        "users", visit.parts["user_id"], "notifications", limit=_SHOWN, after=after
    )
    return await _render(visit, "person_inbox.html", page=page, after=after)


async def show_waiting(visit: Visit) -> Response:
    after = visit.query.get("after")
    page = await visit.get("users", visit.parts["user_id"], "waiting", limit=_SHOWN, after=after)
    for item in page["items"]:
        item["channels"] = describe_reasons(item["channels"])
    return await _render(visit, "person_waiting.html", page=page, after=after)


async def delete(visit: Visit) -> Response:
    """Delete a user, or erase everything about them."""
    user_id = visit.parts["user_id"]
    is_hard = visit.field("how") == "erase"
    if visit.field("confirmation").strip() != user_id:
        refused = fault(visit, "confirmation", "is not the id of this user; nothing was done")
        return await _show_again(visit, "person.html", refused, is_erasing=is_hard)
    await visit.call("DELETE", "users", user_id, query={"hard": "true" if is_hard else "false"})
    return visit.redirect(visit.app_path("people"), notice="erased" if is_hard else "deleted")


async def restore(visit: Visit) -> Response:
    user_id = visit.field("user_id").strip()
    await visit.post("users", user_id, "restore")
    return visit.redirect(visit.app_path("people", user_id), notice="restored")


async def _render(visit: Visit, template: str, **values: Any) -> Response:
    person = await visit.get("users", visit.parts["user_id"])
    return await visit.render(template, person=person, **{"given": person, **values})


async def _show_again(visit: Visit, template: str, refused: Refused, **values: Any) -> Response:
    if refused.problem.status >= _SERVER_FAULT:
        raise refused
    more = {"problem": refused.problem, "errors": refused.fields, "status": refused.problem.status}
    return await _render(visit, template, **more, **values)


_PERSON = "/people/{user_id}"
PAGES = (
    app_page("GET", "/people", list_people, Scope.USERS_READ),
    app_page("POST", "/people/restore", restore, Scope.USERS_WRITE),
    app_page("GET", _PERSON, show_profile, Scope.USERS_READ),
    app_page("POST", _PERSON, change_profile, Scope.USERS_WRITE),
    app_page("GET", f"{_PERSON}/preferences", show_preferences, Scope.USERS_READ),
    app_page("POST", f"{_PERSON}/preferences", change_preferences, Scope.USERS_WRITE),
    app_page("GET", f"{_PERSON}/devices", show_devices, Scope.DEVICES_READ),
    app_page("GET", f"{_PERSON}/inbox", show_inbox, Scope.NOTIFICATIONS_READ),
    app_page("GET", f"{_PERSON}/waiting", show_waiting, Scope.NOTIFICATIONS_READ),
    app_page("POST", f"{_PERSON}/delete", delete, Scope.USERS_WRITE),
)
