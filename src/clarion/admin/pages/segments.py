"""Segments: a list, and the filter of one with the number of users it selects."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import check_unused, read_text, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 50


async def list_segments(visit: Visit) -> Response:
    return await visit.render("segments.html", **await visit.get_page("segments", limit=_SHOWN))


async def show_new_segment(visit: Visit) -> Response:
    return await _show(visit, {"name": "", "filter": ""}, is_new=True)


async def create_segment(visit: Visit) -> Response:
    """Store a segment whose name is not used yet."""
    name = visit.field("name").strip()
    segment = {"name": name, "filter": read_text(visit, "filter")}
    try:
        await check_unused(
            visit,
            "segments",
            name=name,
            field="name",
            rule="must be a name of letters, digits and . _ -",
            what="a segment of this app",
        )
        await visit.call("PUT", "segments", name, body={"filter": segment["filter"]})
    except Refused as refused:
        return await _show_refused(visit, segment, refused, is_new=True)
    return visit.redirect(visit.app_path("segments", name), notice="segment-saved")


async def show_segment(visit: Visit) -> Response:
    """Show the filter; its users are counted afterwards, since that can take seconds."""
    segment = await visit.get("segments", visit.parts["name"])
    return await _show(visit, segment, is_new=False)


async def save_segment(visit: Visit) -> Response:
    name = visit.parts["name"]
    segment = {"name": name, "filter": read_text(visit, "filter")}
    try:
        await visit.get("segments", name)
        await visit.call("PUT", "segments", name, body={"filter": segment["filter"]})
    except Refused as refused:
        return await _show_refused(visit, segment, refused, is_new=False)
    return visit.redirect(visit.app_path("segments", name), notice="segment-saved")


async def count_users(visit: Visit) -> Response:
    """Show how many users the filter in the form selects, without storing it."""
    text, name = read_text(visit, "filter"), visit.field("name").strip()
    segment, is_new = {"name": name, "filter": text}, bool(visit.field("is_new"))
    if not text.strip():
        return await _show(visit, segment, is_new=is_new)
    try:
        counted = await visit.post("segments", "count", body={"filter": text})
    except Refused as refused:
        reasons = "; ".join(refused.fields.values()) or refused.problem.detail
        return await _show(visit, segment, is_new=is_new, reason=reasons)
    return await _show(visit, segment, is_new=is_new, count=counted["count"])


async def delete_segment(visit: Visit) -> Response:
    await visit.call("DELETE", "segments", visit.parts["name"])
    return visit.redirect(visit.app_path("segments"), notice="segment-deleted")


async def _show(
    visit: Visit,
    segment: dict[str, Any],
    *,
    is_new: bool,
    count: int | None = None,
    reason: str = "",
) -> Response:
    return await visit.render(
        "segment.html", segment=segment, is_new=is_new, count=count, reason=reason
    )


async def _show_refused(
    visit: Visit, segment: dict[str, Any], refused: Refused, *, is_new: bool
) -> Response:
    return await show_again(
        visit, "segment.html", refused, segment=segment, is_new=is_new, count=None, reason=""
    )


PAGES = (
    app_page("GET", "/segments", list_segments, Scope.USERS_READ),
    app_page("GET", "/new-segment", show_new_segment, Scope.USERS_WRITE),
    app_page("POST", "/new-segment", create_segment, Scope.USERS_WRITE),
    app_page("POST", "/count-users", count_users, Scope.USERS_READ),
    app_page("GET", "/segments/{name}", show_segment, Scope.USERS_READ),
    app_page("POST", "/segments/{name}", save_segment, Scope.USERS_WRITE),
    app_page("POST", "/segments/{name}/delete", delete_segment, Scope.USERS_WRITE),
)
