"""What would be decided for a user, a type and a time, and by which rule. Nothing is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from clarion.access.model import Scope
from clarion.admin.forms import fault
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.people import find_one
from clarion.admin.reasons import RULES, explain_reason
from clarion.admin.rendering import show_json
from clarion.admin.samples import make_data
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.http.asgi import Response

_TYPES_SHOWN = 100
_USERS_SHOWN = 50
_FIELDS = ("user_id", "type", "at", "data")


async def show_explanation(visit: Visit) -> Response:
    """Show the form, and with a user and a type the verdicts."""
    given = {name: visit.query.get(name, "").strip() for name in _FIELDS}
    found: dict[str, Any] | None = None
    problem, errors = None, {}
    if given["type"] and not given["data"]:
        given["data"] = await _make_sample(visit, given["type"])
    if given["user_id"] and given["type"]:
        try:
            found = await _explain(visit, given)
        except Refused as refused:
            problem, errors = refused.problem, refused.fields
    types = (await visit.get("types", limit=_TYPES_SHOWN))["items"]
    users = await _list_users(visit)
    return await visit.render(
        "explain.html",
        given=given,
        found=found,
        problem=problem,
        errors=errors,
        users=users,
        type_options=[("", "Choose a type"), *((each["type"], each["type"]) for each in types)],
    )


async def _list_users(visit: Visit) -> list[dict[str, Any]]:
    """Return some users to choose from, if the role allows to see them."""
    users: list[dict[str, Any]] = (await visit.get("users", limit=_USERS_SHOWN))["items"]
    return users


async def _make_sample(visit: Visit, type_name: str) -> str:
    """Return the sample of a type as JSON; empty if there is no such type."""
    try:
        type_ = await visit.get("types", type_name)
        templates = (await visit.get("types", type_name, "templates"))["items"]
    except (Refused, NotFound):
        return ""
    return show_json(make_data(type_["data_schema"], templates))


async def _explain(visit: Visit, given: dict[str, str]) -> dict[str, Any]:
    person = await find_one(visit, given["user_id"])
    if person is None:
        raise fault(visit, "recipient.user_id", "no user of this app has this id, email or name")
    zone = person["timezone"]
    draft: dict[str, Any] = {
        "type": given["type"],
        "recipient": {"user_id": person["id"]},
        "at": _read_time(visit, given["at"], zone),
        "data": _read_data(visit, given["data"]),
    }
    draft = {name: value for name, value in draft.items() if value is not None}
    found = describe(await visit.post("explain", body=draft))
    return found | {"zone": zone, "names": {person["id"]: person["name"]}}


def _read_time(visit: Visit, text: str, zone: str) -> str | None:
    """Return the time that a field of the browser holds, in the zone of the user."""
    if not text:
        return None
    try:
        local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
        return local.astimezone(UTC).isoformat()
    except (ValueError, OverflowError) as error:  # the latter: not in the years 1 to 9999 in UTC
        raise fault(visit, "at", "must be a date and a time") from error


def _read_data(visit: Visit, text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError as error:
        raise fault(visit, "data", "must be JSON") from error


def describe(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the verdicts in words, and the result of each rule for each channel."""
    verdicts = [
        each | {"reason_words": explain_reason(each["reason"])} for each in answer["verdicts"]
    ]
    order = list(answer["rules"])
    rules = [
        {
            "name": name,
            "words": RULES.get(name, ""),
            "cells": [_cell(place, each, order) for each in verdicts],
        }
        for place, name in enumerate(order)
    ]
    return answer | {"verdicts": verdicts, "rules": rules}


def _cell(place: int, verdict: dict[str, Any], order: list[str]) -> dict[str, Any]:
    """Return the result of a rule: it passed, it decided, or it was not reached."""
    decided = order.index(verdict["rule"])
    if place == decided:
        return {"kind": "decided", "verdict": verdict["verdict"]}
    return {"kind": "passed" if place < decided else "skipped"}


PAGES = (app_page("GET", "/explain", show_explanation, Scope.EVENTS_READ),)
