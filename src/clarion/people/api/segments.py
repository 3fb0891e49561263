"""Segments over HTTP: the users of an app that a filter selects."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post, put

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import Conflict, existing
from clarion.fields import SegmentName, check_segment, check_value
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_limit
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT
from clarion.people.model import Segment
from clarion.people.segments.parser import parse
from clarion.people.segments.sql.segments import Segments

FilterText = Annotated[
    str,
    msgspec.Meta(
        description="Which users belong to it, like `language = 'de' and tag = 'vip'`.",
        examples=["language = 'de' and tag = 'vip' and last_seen_at > '2026-01-01'"],
    ),
]


class SegmentBody(Body):
    """A filter. It is evaluated when an event is sent, so membership is always up to date."""

    filter: FilterText


class SegmentView(View):
    """A segment of the calling app."""

    name: str
    """The name of the segment."""
    filter: FilterText
    created_at: Timestamp
    """When the segment was created."""
    updated_at: Timestamp
    """When its filter changed last."""


class SegmentCountView(View):
    """How many active users a filter selects now."""

    count: int
    """How many active users the filter selects now."""


class SegmentsController(Controller):
    """The segments of the calling app."""

    path = "/v1/segments"
    tags = ("Segments",)

    @get(summary="List segments")
    async def list_segments(
        self,
        request: ApiRequest,
        segments: Injected[Segments],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[SegmentView]:
        """Return the segments of the app, sorted by name."""
        app_id = app_of(request, Scope.USERS_READ).app_id
        page = await segments.list(app_id, after=after, limit=check_limit(limit))
        return Items([SegmentView.of(each) for each in page.items], page.next)

    @post("/count", summary="Count the users of a filter", status_code=200)
    async def count_users(
        self, request: ApiRequest, data: SegmentBody, segments: Injected[Segments]
    ) -> SegmentCountView:
        """Return how many active users a filter selects, without storing it."""
        app_id = app_of(request, Scope.USERS_READ).app_id
        text = check_value("filter", check_filter, data.filter)
        return SegmentCountView(count=await segments.count(app_id, text))

    @get("/{name:str}", summary="Get a segment")
    async def get_segment(
        self, request: ApiRequest, name: SegmentName, segments: Injected[Segments]
    ) -> SegmentView:
        """Return the segment with its filter."""
        app_id = app_of(request, Scope.USERS_READ).app_id
        return SegmentView.of(await _find(segments, app_id, name))

    @put(
        "/{name:str}",
        summary="Create or replace a segment",
        errors=(Conflict,),
        responses={201: describe_response(SegmentView, "The segment was created.")},
    )
    async def put_segment(
        self,
        request: ApiRequest,
        name: SegmentName,
        data: SegmentBody,
        segments: Injected[Segments],
        clock: Injected[Clock],
    ) -> Response[SegmentView]:
        """Create (201) or replace (200) a segment.

        Events that were accepted before use the earlier filter.
        """
        app_id = app_of(request, Scope.USERS_WRITE).app_id
        check_value("name", check_segment, name)
        text, now = check_value("filter", check_filter, data.filter), clock.now()
        given = Segment(app_id=app_id, name=name, filter=text, created_at=now, updated_at=now)
        stored = await segments.put(given)
        if stored is None:
            raise Conflict("This app has as many segments as it may have. Delete one first.")
        segment, is_new = stored
        return Response(SegmentView.of(segment), status_code=201 if is_new else 200)

    @delete("/{name:str}", summary="Delete a segment", status_code=204)
    async def delete_segment(
        self, request: ApiRequest, name: SegmentName, segments: Injected[Segments]
    ) -> None:
        """Delete a segment. Events that were accepted before are still sent."""
        app_id = app_of(request, Scope.USERS_WRITE).app_id
        found = await _find(segments, app_id, name)
        await segments.delete(app_id, found.name)

    @post("/{name:str}/count", summary="Count the users of a segment", status_code=200)
    async def count_segment(
        self, request: ApiRequest, name: SegmentName, segments: Injected[Segments]
    ) -> SegmentCountView:
        """Return how many active users are in the segment now."""
        app_id = app_of(request, Scope.USERS_READ).app_id
        found = await _find(segments, app_id, name)
        return SegmentCountView(count=await segments.count(app_id, found.filter))


def check_filter(text: str) -> str:
    """Return the filter unchanged; `ValueError` says what is wrong, and where."""
    parse(text)
    return text


async def _find(segments: Segments, app_id: str, name: str) -> Segment:
    check_value("name", check_segment, name)
    found = await segments.get(app_id, name)
    return existing(found, "This app has no such segment. Create it with PUT /v1/segments/{name}.")


ROUTES = (SegmentsController,)
