"""Devices: a list to search, and one with the messages that were sent to it."""

from __future__ import annotations

import re

from clarion.access.model import Scope
from clarion.admin.forms import show_list
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.people import read_names
from clarion.admin.visit import Visit
from clarion.http.asgi import Response
from clarion.push.model import Platform

_SHOWN = 50
_MESSAGES_SHOWN = 20
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLATFORMS = [("", "Any"), *((each.value, each.value) for each in Platform)]
_STATES = [("", "Any"), ("true", "valid"), ("false", "not valid")]


async def list_devices(visit: Visit) -> Response:
    """Show devices by user, platform and state; the id of a device redirects to it."""
    chosen = {name: visit.query.get(name, "").strip() for name in ("q", "platform", "valid")}
    if _ID.fullmatch(chosen["q"]) and await _exists(visit, chosen["q"]):
        return visit.redirect(visit.app_path("devices", chosen["q"]))
    given = {name: text or None for name, text in chosen.items()}
    return await show_list(
        visit,
        "devices.html",
        "devices",
        query={"limit": _SHOWN, "user_id": given.pop("q"), **given},
        filter=chosen,
        platforms=_PLATFORMS,
        states=_STATES,
    )


async def _exists(visit: Visit, device_id: str) -> bool:
    """Whether there is such a device; the id of a user can look the same."""
    try:
        await visit.get("devices", device_id)
    except Refused:
        return False
    return True


async def show_device(visit: Visit) -> Response:
    device_id, after = visit.parts["device_id"], visit.query.get("after")
    device = await visit.get("devices", device_id)
    messages = await visit.get("devices", device_id, "messages", limit=_MESSAGES_SHOWN, after=after)
    return await visit.render(
        "device.html",
        device=device,
        names=await read_names(visit, [device["user_id"]]),
        messages=messages["items"],
        next=messages["next"],
        after=after,
    )


async def invalidate_device(visit: Visit) -> Response:
    device_id = visit.parts["device_id"]
    await visit.post("devices", device_id, "invalidate", body={})
    return visit.redirect(visit.app_path("devices", device_id), notice="device-invalidated")


async def delete_device(visit: Visit) -> Response:
    await visit.call("DELETE", "devices", visit.parts["device_id"])
    return visit.redirect(visit.app_path("devices"), notice="device-deleted")


PAGES = (
    app_page("GET", "/devices", list_devices, Scope.DEVICES_READ),
    app_page("GET", "/devices/{device_id}", show_device, Scope.DEVICES_READ),
    app_page("POST", "/devices/{device_id}/invalidate", invalidate_device, Scope.DEVICES_WRITE),
    app_page("POST", "/devices/{device_id}/delete", delete_device, Scope.DEVICES_WRITE),
)
