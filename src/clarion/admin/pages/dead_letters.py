"""Dead letters: events with permanently failed jobs, which can be replayed."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.people import read_names
from clarion.admin.visit import Visit
from clarion.errors import Conflict, RequestError
from clarion.http import problems
from clarion.http.asgi import Response

_SHOWN = 50
_REPLAYED = 50


async def list_dead_letters(visit: Visit) -> Response:
    return await visit.render("dead_letters.html", **await _read_page(visit))


async def _read_page(visit: Visit) -> dict[str, Any]:
    page = await visit.get_page("events", status="failed", limit=_SHOWN)
    user_ids = [each["recipient"].get("user_id") for each in page["items"]]
    return page | {"names": await read_names(visit, user_ids)}


async def replay(visit: Visit) -> Response:
    """Replay the chosen events; those that are no longer failed do not change."""
    chosen = visit.fields("event_id")[:_REPLAYED]
    if not chosen:
        return await _refuse(visit, "Nothing was replayed: choose at least one event first.")
    replayed = [each for each in chosen if await _try_replay(visit, each)]
    if not replayed:
        return await _refuse(
            visit, "Nothing was replayed: none of the chosen events is failed now."
        )
    return visit.redirect(visit.app_path("dead-letters"), notice="replayed")


async def _try_replay(visit: Visit, event_id: str) -> bool:
    """Replay an event; False if it is no longer failed."""
    try:
        await visit.post("events", event_id, "replay")
    except Refused as refused:
        if refused.problem.code != Conflict.code:
            raise
        return False
    return True


async def _refuse(visit: Visit, detail: str) -> Response:
    refused = Refused(problems.describe(RequestError(detail), visit.request.id))
    return await show_again(visit, "dead_letters.html", refused, **await _read_page(visit))


PAGES = (
    app_page("GET", "/dead-letters", list_dead_letters, Scope.EVENTS_READ),
    app_page("POST", "/dead-letters", replay, Scope.EVENTS_WRITE),
)
