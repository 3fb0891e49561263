"""People: a list to search, and everything about one of them."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import check_unused, fault, show_again, show_list
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.people import find_people, search_by
from clarion.admin.preferences import describe_hours, find_changes
from clarion.admin.timelines import describe_reasons
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 50
_FILTERS = ("status", "tag", "language")
_PROFILE = ("name", "email", "phone", "language", "timezone", "status")
_SERVER_FAULT = 500


async def list_people(visit: Visit) -> Response:
    """List users by name, email address and more; an id that is no name redirects to its user."""
    chosen = {name: visit.query.get(name, "").strip() for name in ("q", *_FILTERS)}
    query: dict[str, str | int | None] = {name: chosen[name] or None for name in _FILTERS}
    exact = None
    if wanted := chosen["q"]:
        people = await find_people(visit, wanted, 2)
        exact = next((each for each in people if each["id"] == wanted), None)
        if exact and len(people) == 1:
            return visit.redirect(visit.app_path("people", wanted))
        query |= search_by(wanted)
    return await show_list(
        visit,
        "people.html",
        "users",
        query={"limit": _SHOWN, **query},
        filter=chosen,
        exact=exact,
    )


async def show_new_person(visit: Visit) -> Response:
    given = {"id": visit.query.get("id", ""), "tags": []}
    return await visit.render("new_person.html", given=given)


async def create_person(visit: Visit) -> Response:
    """Create a user with an id that no user of the app has."""
    given = {"id": visit.field("id").strip(), **_read_profile(visit)}
    try:
        await check_unused(
            visit,
            "users",
            name=given["id"],
            field="id",
            rule="must have letters, digits or . _ ~ : @ = + | -",
            what="the id of a user",
        )
        body = {name: value for name, value in given.items() if name != "id" and value}
        await visit.call("PUT", "users", given["id"], body=body)
    except Refused as refused:
        return await show_again(visit, "new_person.html", refused, given=given)
    return visit.redirect(visit.app_path("people", given["id"]), notice="user-created")


async def show_profile(visit: Visit) -> Response:
    return await _render(visit, "person.html")


async def change_profile(visit: Visit) -> Response:
    """Update the fields of the form; an empty one is reset to its default."""
    body = _read_profile(visit)
    try:
        await visit.call("PATCH", "users", visit.parts["user_id"], body=body)
    except Refused as refused:
        return await _show_again(visit, "person.html", refused, given=body)
    return visit.redirect(visit.path, notice="saved")


def _read_profile(visit: Visit) -> dict[str, Any]:
    profile: dict[str, Any] = {name: visit.field(name).strip() or None for name in _PROFILE}
    tags = [tag for tag in map(str.strip, visit.field("tags").split(",")) if tag]
    return profile | {"tags": tags}


async def show_preferences(visit: Visit) -> Response:
    return await _render(visit, "person_preferences.html", **await _read_preferences(visit))


async def _read_preferences(visit: Visit) -> dict[str, Any]:
    user_id = visit.parts["user_id"]
    found = await visit.get("users", user_id, "preferences", explain="true")
    return {"preferences": found, "hours": describe_hours(found["quiet_hours"]["value"])}


async def change_preferences(visit: Visit) -> Response:
    """Store the preferences that the form has changed."""
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
    app_page("GET", "/new-person", show_new_person, Scope.USERS_WRITE),
    app_page("POST", "/new-person", create_person, Scope.USERS_WRITE),
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
