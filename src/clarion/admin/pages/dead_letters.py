"""Dead letters: events whose jobs failed for good, to be replayed."""

from __future__ import annotations

from clarion.access.model import Scope
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.errors import Conflict
from clarion.http.asgi import Response

_SHOWN = 50
_REPLAYED = 50


async def list_dead_letters(visit: Visit) -> Response:
    page = await visit.get_page("events", status="failed", limit=_SHOWN)
    return await visit.render("dead_letters.html", **page)


async def replay(visit: Visit) -> Response:
    """Replay the chosen events; one that is not failed any more is left as it is."""
    for event_id in visit.fields("event_id")[:_REPLAYED]:
        try:
            await visit.post("events", event_id, "replay")
        except Refused as refused:
            if refused.problem.code != Conflict.code:
                raise
    return visit.redirect(visit.app_path("dead-letters"), notice="replayed")


PAGES = (
    app_page("GET", "/dead-letters", list_dead_letters, Scope.EVENTS_READ),
    app_page("POST", "/dead-letters", replay, Scope.EVENTS_WRITE),
)
