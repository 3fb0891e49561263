"""Feedback over HTTP: tokens that are no longer valid."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from litestar import Request, get

from clarion.access.model import Scope
from clarion.errors import FieldFault, InvalidFields
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import After, Items, to_milliseconds, to_wire
from clarion.push.port import FeedbackList

PAGE = 1_000


class FeedbackView(msgspec.Struct):
    """A token that is no longer valid, by its SHA-256."""

    token_hash: str
    app_id: str
    reason: str
    timestamp: str | None


@get("/v1/feedback", summary="List tokens that are no longer valid", tags=["Devices"])
async def get_feedback(
    request: Request[Any, Any, Any],
    feedback: Injected[FeedbackList],
    app_id: str | None = None,
    since: datetime | None = None,
    after: After = None,
    limit: int = PAGE,
) -> Items[FeedbackView]:
    """Return them oldest first, 1,000 a page, those invalidated at `since` or later.

    Stop using a token unless it was registered again after its timestamp.
    """
    caller = app_of(request, Scope.DEVICES_READ)
    if app_id is not None and app_id != caller.app_id:
        raise InvalidFields(FieldFault("app_id", "must be the app of the key that calls"))
    if not 1 <= limit <= PAGE:
        raise InvalidFields(FieldFault("limit", f"must be from 1 to {PAGE}"))
    start = to_milliseconds(since, "since") or 0
    page = await feedback.list(caller.app_id, since=start, after=after, limit=limit)
    views = [
        FeedbackView(
            entry.token_hash.hex(), entry.app_id, entry.reason, to_wire(entry.invalidated_at)
        )
        for entry in page.items
    ]
    return Items(views, page.next)
