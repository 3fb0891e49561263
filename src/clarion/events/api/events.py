"""Events over HTTP: their state, cancelling, dead letters, and what would become of one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, delete, get, post
from litestar.params import Parameter

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import Conflict, FieldFault, InvalidFields, NotFound
from clarion.events.decide.verdicts import Drop, Fold, Hold
from clarion.events.drafts import EventDraft
from clarion.events.explainer import RULES, Explaining, Explanation
from clarion.events.model import LISTED, Event, EventStatus
from clarion.events.port import Events
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected, Wake
from clarion.http.shapes import (
    PAGE_DEFAULT,
    After,
    Items,
    Limit,
    check_limit,
    to_milliseconds,
    to_wire,
)

_TAGS = ("Events",)
ByStatus = Annotated[
    str | None, Parameter(description=f"One of {', '.join(sorted(LISTED))}; without it, all.")
]


class EventView(msgspec.Struct):
    """An event and what became of it."""

    event_id: str
    type: str
    status: str
    priority: str
    recipient: dict[str, Any]
    retry_count: int
    last_error: str | None
    notification_count: int
    remaining: int
    scheduled_at: str | None
    expires_at: str | None
    created_at: str | None
    updated_at: str | None


class ExplainDraft(EventDraft, kw_only=True):
    """An event for one person, and the moment to decide for; now, unless said otherwise."""

    at: datetime | None = None


class Verdict(msgspec.Struct):
    """What would become of it on a channel, why, which rule said so, and from when."""

    channel: str
    verdict: str
    reason: str
    rule: str
    until: str | None


class ExplanationView(msgspec.Struct):
    """The verdicts, and the rules in the order in which they are asked: the first answer counts."""

    user_id: str
    at: str | None
    verdicts: list[Verdict]
    rules: list[str]


class EventsController(Controller):
    """What happened."""

    path = "/v1/events"
    tags = _TAGS

    @get(summary="List events")
    async def list_events(
        self,
        request: Request[Any, Any, Any],
        events: Injected[Events],
        status: ByStatus = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[EventView]:
        """Return events, newest first; `?status=failed` are the dead letters."""
        caller = app_of(request, Scope.EVENTS_READ)
        page = await events.list(
            caller.app_id, status=_check_status(status), after=after, limit=check_limit(limit)
        )
        return Items([_view(each) for each in page.items], page.next)

    @get("/{event_id:str}", summary="See an event")
    async def see(
        self, request: Request[Any, Any, Any], event_id: str, events: Injected[Events]
    ) -> EventView:
        """Return an event's state."""
        caller = app_of(request, Scope.EVENTS_READ)
        return _view(await _find(events, caller.app_id, event_id))

    @delete("/{event_id:str}", summary="Cancel an event", status_code=200)
    async def cancel(
        self,
        request: Request[Any, Any, Any],
        event_id: str,
        events: Injected[Events],
        clock: Injected[Clock],
    ) -> EventView:
        """Call back what is not sent yet. Again changes nothing."""
        caller = app_of(request, Scope.EVENTS_WRITE)
        is_done = await events.cancel(caller.app_id, event_id, clock.now())
        event = await _find(events, caller.app_id, event_id)
        if not is_done and event.status is not EventStatus.CANCELLED:
            msg = f"This event is {event.status.value}: it is too late to cancel it."
            raise Conflict(msg)
        return _view(event)

    @post("/{event_id:str}/replay", summary="Try a dead letter again", status_code=202)
    async def replay(
        self,
        request: Request[Any, Any, Any],
        event_id: str,
        events: Injected[Events],
        clock: Injected[Clock],
        wake: Injected[Wake],
    ) -> EventView:
        """Try what failed once more, from the first of its five tries."""
        caller = app_of(request, Scope.EVENTS_WRITE)
        event = await _find(events, caller.app_id, event_id)
        if not await events.replay(caller.app_id, event_id, event.priority, clock.now()):
            msg = f"This event is {event.status.value}: only what has failed can be replayed."
            raise Conflict(msg)
        wake()
        return _view(await _find(events, caller.app_id, event_id))


@post("/v1/explain", summary="Ask what would become of an event", status_code=200, tags=_TAGS)
async def explain(
    request: Request[Any, Any, Any],
    data: ExplainDraft,
    explaining: Injected[Explaining],
    clock: Injected[Clock],
) -> ExplanationView:
    """Decide without sending: the verdict for each channel, its reason and rule."""
    caller = app_of(request, Scope.EVENTS_READ)
    at = to_milliseconds(data.at, "at")
    planned = to_milliseconds(data.scheduled_at, "scheduled_at")
    at = next((each for each in (at, planned) if each is not None), clock.now())
    return _explain(await explaining.explain(caller.app_id, data, at))


async def _find(events: Events, app_id: str, event_id: str) -> Event:
    event = await events.get(app_id, event_id)
    if event is None:
        raise NotFound
    return event


def _check_status(status: str | None) -> EventStatus | None:
    if status is None:
        return None
    if status not in LISTED:
        raise InvalidFields(FieldFault("status", f"must be one of {', '.join(sorted(LISTED))}"))
    return EventStatus(status)


def _view(event: Event) -> EventView:
    return EventView(
        event_id=event.id,
        type=event.type,
        status=event.status.value,
        priority=event.priority.name.lower(),
        recipient=_recipient(event),
        retry_count=event.retry_count,
        last_error=event.last_error,
        notification_count=event.notification_count,
        remaining=event.remaining,
        scheduled_at=to_wire(event.scheduled_at),
        expires_at=to_wire(event.expires_at),
        created_at=to_wire(event.created_at),
        updated_at=to_wire(event.updated_at),
    )


def _recipient(event: Event) -> dict[str, Any]:
    audience = event.audience
    match audience.kind.value:
        case "user":
            return {"user_id": audience.ids[0]}
        case "users":
            return {"user_ids": list(audience.ids)}
        case "topic":
            return {"topic": audience.topic}
        case _:
            return {"all": True}


def _explain(explanation: Explanation) -> ExplanationView:
    verdicts = []
    for each in explanation.decisions:
        verdict = each.verdict
        until = verdict.until if isinstance(verdict, (Hold, Fold)) else None
        kind = "drop" if isinstance(verdict, Drop) else type(verdict).__name__.lower()
        verdicts.append(
            Verdict(each.channel.value, kind, verdict.reason.value, each.rule, to_wire(until))
        )
    return ExplanationView(explanation.user_id, to_wire(explanation.at), verdicts, list(RULES))
