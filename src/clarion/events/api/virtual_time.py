"""The clock of a test server over HTTP. Only a server with `--clock test` has these operations."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from litestar import Controller, get, post
from msgspec import Meta

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields
from clarion.events.virtual_time import VirtualTime
from clarion.fields import Moment
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import to_milliseconds
from clarion.http.views import Timestamp, View

# Two years: longer than anything is planned ahead or kept by default.
LONGEST = timedelta(days=731)
_DURATION = (
    r"P(?:(?P<weeks>\d{1,4})W|(?:(?P<days>\d{1,4})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,5})H)?(?:(?P<minutes>\d{1,7})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:\.\d{1,3})?)S)?)?)"
)
Duration = Annotated[
    str,
    Meta(
        description="How far, as an ISO 8601 duration of weeks, or days, hours, minutes and "
        "seconds, such as `PT2H`, `P1DT30M` or `PT0.5S`; at most two years.",
        extra_json_schema={"format": "duration"},
    ),
]


class ClockDraft(Body):
    """How to move the clock: either ahead by a duration, or to a time."""

    advance: Duration | None = None
    now: Annotated[
        Moment | None, Meta(description="The new time; at most two years ahead, and never back.")
    ] = None


class ClockView(View):
    """The time of a test server."""

    now: Timestamp
    """What time it is."""
    is_settled: Annotated[
        bool,
        Meta(
            description="Whether everything that is due by now is done. False if that takes longer "
            "than 20 s: the work continues, and the same call with `PT0S` waits for it again."
        ),
    ]


class ClockController(Controller):
    """The clock of a test server."""

    path = "/v1/test/clock"
    tags = ("Tests",)

    @get(summary="Get the test clock")
    async def get_clock(
        self, request: ApiRequest, virtual_time: Injected[VirtualTime]
    ) -> ClockView:
        """Return the time, after everything that is due by now is done."""
        app_of(request, Scope.EVENTS_READ)
        moved = await virtual_time.move_to(0)
        return ClockView.of(moved)

    @post(summary="Move the test clock", status_code=200)
    async def move_clock(
        self,
        request: ApiRequest,
        data: ClockDraft,
        virtual_time: Injected[VirtualTime],
        clock: Injected[Clock],
    ) -> ClockView:
        """Move the time of all apps ahead. Everything that becomes due is done before this returns.

        Each job runs at its own due time, so a retry after an hour is followed by the next one.
        """
        app_of(request, Scope.EVENTS_WRITE)
        return ClockView.of(await virtual_time.move_to(read_moment(data, clock.now())))


def read_moment(draft: ClockDraft, now: int) -> int:
    """Return the time to move to; `InvalidFields` if it is before now, or too far ahead."""
    if (draft.advance is None) == (draft.now is None):
        raise InvalidFields(FieldFault("advance", "give either `advance` or `now`"))
    name = "now" if draft.advance is None else "advance"
    moment = to_milliseconds(draft.now, "now")
    if draft.advance is not None:
        moment = now + read_duration(draft.advance) // timedelta(milliseconds=1)
    if moment is None or moment < now:
        raise InvalidFields(FieldFault(name, "must not be in the past: a clock never goes back"))
    if moment - now > LONGEST // timedelta(milliseconds=1):
        raise InvalidFields(FieldFault(name, "must be at most two years ahead"))
    return moment


def read_duration(text: str) -> timedelta:
    found = re.fullmatch(_DURATION, text, re.ASCII)
    given = found.groupdict("").items() if found else ()
    parts = {name: float(value) for name, value in given if value}
    if not parts:
        reason = "must be an ISO 8601 duration such as PT2H or P1DT30M, without months and years"
        raise InvalidFields(FieldFault("advance", reason))
    return timedelta(**parts)


ROUTES = (ClockController,)
