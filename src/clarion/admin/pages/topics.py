"""Topics that devices subscribe to, and messages to all their subscribers."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import fault, read_number, read_object, read_text, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 50
_DAY_S = 24 * 3600
_LIFETIMES = [
    ("3600", "1 hour"),
    (str(_DAY_S), "1 day"),
    (str(7 * _DAY_S), "7 days"),
    (str(30 * _DAY_S), "30 days"),
]
_PRIORITIES = [("10", "at once"), ("5", "when it suits the battery")]


async def list_topics(visit: Visit) -> Response:
    return await visit.render("topics.html", **await _values_of(visit))


async def put_topic(visit: Visit) -> Response:
    """Create a topic, or say whether users may subscribe to it."""
    name = visit.field("topic").strip()
    try:
        if not name or "/" in name:
            raise fault(visit, "topic", "must be the name of a topic")
        body = {"open": bool(visit.field("open"))}
        await visit.call("PUT", "topics", name, body=body)
    except Refused as refused:
        return await show_again(visit, "topics.html", refused, **await _values_of(visit))
    return visit.redirect(visit.app_path("topics"), notice="topic-saved")


async def show_broadcast(visit: Visit) -> Response:
    return await visit.render("broadcast.html", **_broadcast_values(visit))


async def broadcast(visit: Visit) -> Response:
    """Send a message to all devices that are subscribed to a topic."""
    topic = visit.parts["topic"]
    try:
        body = {"payload": _read_payload(visit), **_read_options(visit)}
        await visit.post("topics", topic, "messages", body=body)
    except Refused as refused:
        return await show_again(visit, "broadcast.html", refused, **_broadcast_values(visit))
    return visit.redirect(visit.app_path("topics"), notice="broadcast")


def _read_payload(visit: Visit) -> dict[str, Any]:
    """Return an alert as devices show it, with the data that was added."""
    title, text = read_text(visit, "title").strip(), read_text(visit, "body").strip()
    if not title and not text:
        raise fault(visit, "body", "must be a text")
    alert = {name: value for name, value in (("title", title), ("body", text)) if value}
    return {**(read_object(visit, "data") or {}), "aps": {"alert": alert, "sound": "default"}}


def _read_options(visit: Visit) -> dict[str, Any]:
    numbers = {name: read_number(visit, name) for name in ("ttl_s", "priority")}
    return {name: number for name, number in numbers.items() if number is not None}


def _broadcast_values(visit: Visit) -> dict[str, Any]:
    names = ("title", "body", "data", "ttl_s", "priority")
    return {
        "topic": visit.parts["topic"],
        "given": {name: visit.field(name) for name in names},
        "lifetimes": _LIFETIMES,
        "priorities": _PRIORITIES,
    }


async def _values_of(visit: Visit) -> dict[str, Any]:
    """Return a page of topics.

    The subscribers of the largest ones are counted only when the page asks for it: that is slow.
    """
    is_counted = "counted" in visit.query
    page = await visit.get_page("topics", limit=_SHOWN)
    counted = (await visit.get("stats"))["topics"] if is_counted else []
    return {
        **page,
        "is_counted": is_counted,
        "subscribers": {each["topic"]: each["subscribers"] for each in counted},
        "given": {"topic": visit.field("topic")},
    }


PAGES = (
    app_page("GET", "/topics", list_topics, Scope.TOPICS_READ),
    app_page("POST", "/topics", put_topic, Scope.TOPICS_WRITE),
    app_page("GET", "/topics/{topic}/broadcast", show_broadcast, Scope.TOPICS_WRITE),
    app_page("POST", "/topics/{topic}/broadcast", broadcast, Scope.TOPICS_WRITE),
)
