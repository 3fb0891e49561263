"""Notification types: a list, one with its templates, and the form by which it is defined."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import check_unused, read_number, read_object, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.rendering import show_json, show_query
from clarion.admin.visit import Visit
from clarion.catalog.model import Category, Channel, DedupeMode, Overflow, Priority
from clarion.http.asgi import Response

_SHOWN = 100
_CHANNELS = tuple(each.value for each in Channel if each is not Channel.STUB)
_OPTIONS: dict[str, Any] = {
    "priorities": [(each.name.lower(), each.name.lower()) for each in Priority],
    "overflows": [
        (Overflow.DROP.value, "is dropped"),
        (Overflow.WAIT.value, "waits"),
        (Overflow.DIGEST.value, "joins a digest"),
    ],
    "modes": [
        (DedupeMode.DROP.value, "are dropped"),
        (DedupeMode.AGGREGATE.value, "are counted in the first one"),
    ],
}
# The fields of the form with one value each, as they are shown again.
_SINGLE = (
    "display_name",
    "category",
    "priority",
    "user_can_disable",
    "is_active",
    "send_when_read",
)
_NEW: dict[str, Any] = {
    "type": "",
    "display_name": "",
    "category": Category.TRANSACTIONAL.value,
    "default_channels": [Channel.IN_APP.value],
    "optional_channels": [],
    "priority": "medium",
    "user_can_disable": True,
    "is_active": True,
    "rate_limit": None,
    "dedupe": None,
    "digest": None,
    "data_schema": None,
    "send_when_read": False,
    "origin": "own",
}


async def list_types(visit: Visit) -> Response:
    return await visit.render("types.html", **await visit.get_page("types", limit=_SHOWN))


async def show_type(visit: Visit) -> Response:
    """Show a type, and its templates by channel and language."""
    name = visit.parts["type_name"]
    type_ = await visit.get("types", name)
    templates = (await visit.get("types", name, "templates"))["items"]
    channels = [*type_["default_channels"], *type_["optional_channels"]]
    written = {each["channel"] for each in templates}
    return await visit.render(
        "type.html",
        type=type_,
        templates=templates,
        missing=[each for each in channels if each not in written],
        channels=[(each, each.replace("_", " ")) for each in _CHANNELS],
    )


async def show_new_type(visit: Visit) -> Response:
    return await _show_form(visit, _NEW, is_new=True)


async def edit_type(visit: Visit) -> Response:
    type_ = await visit.get("types", visit.parts["type_name"])
    return await _show_form(visit, type_, is_new=False)


async def create_type(visit: Visit) -> Response:
    """Define a type that the app does not have yet."""
    name = visit.field("type").strip()
    try:
        await check_unused(
            visit,
            "types",
            name=name,
            field="type",
            rule="must begin with a letter; letters, digits and . _ - follow",
            what="a type of this app",
        )
    except Refused as refused:
        return await _show_given(visit, refused, name, is_new=True)
    return await _save(visit, name, is_new=True)


async def save_type(visit: Visit) -> Response:
    return await _save(visit, visit.parts["type_name"], is_new=False)


async def delete_type(visit: Visit) -> Response:
    await visit.call("DELETE", "types", visit.parts["type_name"])
    return visit.redirect(visit.app_path("types"), notice="type-deleted")


async def find_template(visit: Visit) -> Response:
    """Redirect to the template for a channel and language, which may not exist yet."""
    channel, language = visit.query.get("channel", ""), visit.query.get("language", "").strip()
    place = ("types", visit.parts["type_name"])
    if not channel:
        return visit.redirect(visit.app_path(*place))
    path = visit.app_path(*place, "templates", channel)
    return visit.redirect(path + show_query({"language": language}))


async def _save(visit: Visit, name: str, *, is_new: bool) -> Response:
    try:
        await visit.call("PUT", "types", name, body=_read_type(visit))
    except Refused as refused:
        return await _show_given(visit, refused, name, is_new=is_new)
    return visit.redirect(visit.app_path("types", name), notice="type-saved")


def _read_type(visit: Visit) -> dict[str, Any]:
    """Return the definition that the form describes."""
    return {
        "display_name": visit.field("display_name"),
        "category": visit.field("category"),
        "default_channels": visit.fields("default_channels"),
        "optional_channels": visit.fields("optional_channels"),
        "priority": visit.field("priority"),
        "user_can_disable": bool(visit.field("user_can_disable")),
        "is_active": bool(visit.field("is_active")),
        "rate_limit": _read_rate_limit(visit),
        "dedupe": _read_dedupe(visit),
        "digest": _read_digest(visit),
        "data_schema": read_object(visit, "data_schema"),
        "send_when_read": bool(visit.field("send_when_read")),
    }


def _read_rate_limit(visit: Visit) -> dict[str, Any] | None:
    count = read_number(visit, "per_user_per_hour")
    return {"per_user_per_hour": count, "overflow": visit.field("overflow")} if count else None


def _read_dedupe(visit: Visit) -> dict[str, Any] | None:
    window = read_number(visit, "dedupe_window_s")
    return {"window_s": window, "mode": visit.field("dedupe_mode")} if window else None


def _read_digest(visit: Visit) -> dict[str, Any] | None:
    window, daily = read_number(visit, "digest_window_s"), visit.field("daily_at").strip()
    given = {"window_s": window, "daily_at": daily or None}
    return {name: value for name, value in given.items() if value} or None


async def _list_categories(visit: Visit) -> list[tuple[str, str]]:
    found = (await visit.get("categories", limit=_SHOWN))["items"]
    return [(each["name"], each["title"]) for each in found]


async def _show_form(visit: Visit, type_: dict[str, Any], *, is_new: bool) -> Response:
    schema = type_["data_schema"]
    return await visit.render(
        "type_form.html",
        type=type_,
        schema=show_json(schema) if schema else "",
        is_new=is_new,
        channels=_CHANNELS,
        categories=await _list_categories(visit),
        **_OPTIONS,
    )


async def _show_given(visit: Visit, refused: Refused, name: str, *, is_new: bool) -> Response:
    """Show the form again as it was filled in."""
    given = {field: visit.field(field) for field in _SINGLE}
    channels = {each: visit.fields(each) for each in ("default_channels", "optional_channels")}
    pairs = {
        "rate_limit": {
            "per_user_per_hour": visit.field("per_user_per_hour"),
            "overflow": visit.field("overflow"),
        },
        "dedupe": {"window_s": visit.field("dedupe_window_s"), "mode": visit.field("dedupe_mode")},
        "digest": {
            "window_s": visit.field("digest_window_s"),
            "daily_at": visit.field("daily_at"),
        },
    }
    return await show_again(
        visit,
        "type_form.html",
        refused,
        type=_NEW | given | channels | pairs | {"type": name},
        schema=visit.field("data_schema"),
        is_new=is_new,
        channels=_CHANNELS,
        categories=await _list_categories(visit),
        **_OPTIONS,
    )


PAGES = (
    app_page("GET", "/types", list_types, Scope.TYPES_READ),
    app_page("GET", "/new-type", show_new_type, Scope.TYPES_WRITE),
    app_page("POST", "/new-type", create_type, Scope.TYPES_WRITE),
    app_page("GET", "/types/{type_name}", show_type, Scope.TYPES_READ),
    app_page("GET", "/types/{type_name}/edit", edit_type, Scope.TYPES_WRITE),
    app_page("POST", "/types/{type_name}/edit", save_type, Scope.TYPES_WRITE),
    app_page("POST", "/types/{type_name}/delete", delete_type, Scope.TYPES_WRITE),
    app_page("GET", "/types/{type_name}/templates", find_template, Scope.TYPES_READ),
)
