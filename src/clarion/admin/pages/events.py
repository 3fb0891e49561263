"""Events: the form that sends one, with its preview, and the page of one."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import fault, read_object, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.pages.explain import describe
from clarion.admin.people import find_one, read_names
from clarion.admin.rendering import show_json
from clarion.admin.samples import ACTOR, TARGET, make_data
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.http.asgi import Response

_TYPES_SHOWN = 100
_SHOWN = 50
_UNFINISHED = frozenset({"scheduled", "pending", "processing"})


async def show_form(visit: Visit) -> Response:
    """Show the form; `?type=` and `?user_id=` fill it in."""
    given = {name: visit.query.get(name, "").strip() for name in ("type", "user_id")}
    given |= {"actor": ACTOR["name"], "data": "", "sample": ""}
    return await visit.render("send.html", **await _values_of(visit, given))


async def preview_event(visit: Visit) -> Response:
    """Show what would be sent and decided. Nothing is stored."""
    return await visit.render("send.html", **await _values_of(visit, _read_form(visit)))


async def send_event(visit: Visit) -> Response:
    given = _read_form(visit)
    try:
        draft = await _read_draft(visit, given)
        sent = await visit.post("events", body=draft)
    except Refused as refused:
        return await show_again(visit, "send.html", refused, **await _values_of(visit, given))
    return visit.redirect(visit.app_path("events", sent["event_id"]), notice="event-sent")


def _read_form(visit: Visit) -> dict[str, str]:
    names = ("type", "user_id", "actor", "data", "sample")
    return {name: visit.field(name).replace("\r\n", "\n").strip() for name in names}


async def _read_draft(visit: Visit, given: dict[str, str]) -> dict[str, Any]:
    """Return the event of the form; `Refused` if the person does not exist."""
    person = await find_one(visit, given["user_id"])
    if person is None:
        raise fault(visit, "recipient.user_id", "no user of this app has this id, email or name")
    draft: dict[str, Any] = {
        "type": given["type"],
        "recipient": {"user_id": person["id"]},
        "data": read_object(visit, "data", given["data"]) or {},
        "target": TARGET,
    }
    return draft | ({"actor": {"name": given["actor"]}} if given["actor"] else {})


async def _values_of(visit: Visit, given: dict[str, str]) -> dict[str, Any]:
    types = (await visit.get("types", limit=_TYPES_SHOWN))["items"]
    type_ = await _find_type(visit, types, given["type"])
    templates = await _list_templates(visit, type_)
    sample = show_json(make_data(type_["data_schema"], templates)) if type_ else ""
    # Data that was written by somebody stays; the sample of another type does not.
    if given["data"] in ("", given["sample"]):
        given = given | {"data": sample}
    person = await find_one(visit, given["user_id"])
    return {
        "given": given
        | {"sample": sample, "user_id": person["id"] if person else given["user_id"]},
        "type": type_,
        "person": person,
        "people": (await visit.get("users", limit=_SHOWN))["items"],
        "type_options": [("", "Choose a type"), *((each["type"], each["type"]) for each in types)],
        **await _foresee(visit, given, type_, person),
    }


async def _find_type(visit: Visit, types: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the type with a name, also if it is on a later page of the list."""
    if not name:
        return None
    known = next((each for each in types if each["type"] == name), None)
    if known is None:
        try:
            known = await visit.get("types", name)
        except (Refused, NotFound):
            return None
        types.append(known)
    return known


async def _list_templates(visit: Visit, type_: dict[str, Any] | None) -> list[dict[str, Any]]:
    if type_ is None:
        return []
    found: list[dict[str, Any]] = (await visit.get("types", type_["type"], "templates"))["items"]
    return found


async def _foresee(
    visit: Visit, given: dict[str, str], type_: dict[str, Any] | None, person: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the verdict and the text for each channel, or why there are none."""
    if type_ is None or person is None:
        return {"verdicts": [], "fault": None}
    try:
        draft = await _read_draft(visit, given)
        found = describe(await visit.post("explain", body=draft))
    except Refused as refused:
        return {"verdicts": [], "fault": refused.explain()}
    verdicts = [
        each | {"preview": await _preview(visit, each["channel"], draft, person)}
        for each in found["verdicts"]
    ]
    return {"verdicts": verdicts, "fault": None}


async def _preview(
    visit: Visit, channel: str, draft: dict[str, Any], person: dict[str, Any]
) -> dict[str, Any]:
    """Return the text that this person would get over a channel, or why there is none."""
    body: dict[str, Any] = {
        name: draft[name] for name in ("data", "actor", "target") if name in draft
    }
    body["user"] = {"name": person["name"]} if person["name"] else {}
    place = ("types", draft["type"], "templates", channel, "preview")
    try:
        found = await visit.post(*place, body=body, language=person["language"])
    except Refused as refused:
        return {"fault": refused.explain(), "subject": None, "body": ""}
    return found | {"fault": None}


async def show_event(visit: Visit) -> Response:
    """Show an event, its decisions, and the actions that are possible."""
    return await visit.render("event.html", **await _read_event(visit))


async def change_event(visit: Visit) -> Response:
    """Replay a failed event, or cancel a waiting one."""
    event_id, action = visit.parts["event_id"], visit.field("action")
    try:
        if action == "cancel":
            await visit.call("DELETE", "events", event_id)
        elif action == "replay":
            await visit.post("events", event_id, "replay")
        else:
            raise fault(visit, "action", "must be replay or cancel")
    except Refused as refused:
        return await show_again(visit, "event.html", refused, **await _read_event(visit))
    return visit.redirect(visit.path, notice=f"event-{action}")


async def _read_event(visit: Visit) -> dict[str, Any]:
    event = await visit.get("events", visit.parts["event_id"])
    page = await visit.get_page("events", event["event_id"], "notifications", limit=_SHOWN)
    for item in page["items"]:
        found = await visit.get("notifications", item["id"], "deliveries")
        item["deliveries"] = found["items"]
    user_ids = [event["recipient"].get("user_id"), *(each["user_id"] for each in page["items"])]
    names = await read_names(visit, user_ids)
    return {"event": event, **page, "names": names, "is_open": event["status"] in _UNFINISHED}


_EVENT = "/events/{event_id}"
PAGES = (
    app_page("GET", "/send", show_form, Scope.EVENTS_WRITE),
    app_page("POST", "/send", send_event, Scope.EVENTS_WRITE),
    app_page("POST", "/send/preview", preview_event, Scope.EVENTS_WRITE),
    app_page("GET", _EVENT, show_event, Scope.EVENTS_READ),
    app_page("POST", _EVENT, change_event, Scope.EVENTS_WRITE),
)
