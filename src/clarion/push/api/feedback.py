"""Feedback over HTTP: tokens that are no longer valid."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import Parameter

from clarion.access.model import Scope
from clarion.clock import to_rfc3339
from clarion.errors import FieldFault, InvalidFields
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Moment
from clarion.http.shapes import Items, read_moment
from clarion.http.views import Timestamp, View
from clarion.push.model import InvalidationReason
from clarion.push.sql.feedback import FeedbackList

PAGE = 1_000


class FeedbackView(View):
    """A token that is no longer valid, as its SHA-256, and since when."""

    token_hash: str
    """The SHA-256 of the token, in hexadecimal digits."""
    app_id: str
    """The app of the device."""
    reason: InvalidationReason
    """Why the token is no longer valid."""
    timestamp: Timestamp
    """Since when it is not."""


@get("/v1/feedback", summary="List tokens that are no longer valid", tags=["Devices"])
async def list_feedback(
    request: ApiRequest,
    feedback: Injected[FeedbackList],
    app_id: Annotated[
        str | None, Parameter(description="The app; must be that of the key that calls.")
    ] = None,
    since: Moment = None,
    after: After = None,
    limit: Annotated[
        int,
        Parameter(
            description="Items in a page, 1 to 1,000.",
            schema_extra={"minimum": 1, "maximum": PAGE},
        ),
    ] = PAGE,
) -> Items[FeedbackView]:
    """Return tokens invalidated at `since` or later, oldest first, 1,000 a page.

    Stop using a token unless it was registered again after its timestamp.
    """
    caller = app_of(request, Scope.DEVICES_READ)
    if app_id is not None and app_id != caller.app_id:
        raise InvalidFields(FieldFault("app_id", "must be the app of the key that calls"))
    if not 1 <= limit <= PAGE:
        raise InvalidFields(FieldFault("limit", f"must be from 1 to {PAGE}"))
    start = read_moment(since, "since") or 0
    page = await feedback.list(caller.app_id, since=start, after=after, limit=limit)
    views = [
        FeedbackView.of(
            entry,
            token_hash=entry.token_hash.hex(),
            timestamp=to_rfc3339(entry.invalidated_at),
        )
        for entry in page.items
    ]
    return Items(views, page.next)


ROUTES = (list_feedback,)
