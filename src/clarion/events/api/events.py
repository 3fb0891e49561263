"""Events over HTTP: get, list, cancel and replay them, and explain decisions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from litestar import Controller, delete, get, post
from litestar.params import Parameter
from msgspec import Meta

from clarion.access.model import Scope
from clarion.catalog.model import Channel, PriorityName
from clarion.clock import Clock, to_rfc3339
from clarion.errors import Conflict, NotFound
from clarion.events.decide.verdicts import Decision, Fold, Hold
from clarion.events.drafts import EventDraft, Recipient, one_of
from clarion.events.explainer import RULES, Explainer
from clarion.events.model import Audience, AudienceKind, Event, EventStatus
from clarion.events.port import Events
from clarion.fields import EventId, Moment, UserId, check_value
from clarion.history.model import ReasonCode
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected, Wake
from clarion.http.parameters import After, Limit
from clarion.http.shapes import Items, check_choice, check_limit, to_milliseconds, to_wire
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT

_TAGS = ("Events",)
ByStatus = Annotated[
    str | None,
    Parameter(
        description="Only events with this status.", schema_extra={"enum": list(EventStatus)}
    ),
]


class EventView(View):
    """An event and its progress."""

    event_id: str
    """The id that the event was given when it was accepted."""
    type: str
    """The notification type."""
    status: EventStatus
    """How far the event is."""
    priority: PriorityName
    """`low`, `medium`, `high` or `critical`."""
    recipient: dict[str, Any]
    """Who is to be notified, as it was sent; of a segment also the filter that applied."""
    retry_count: int
    """How often its processing was retried."""
    last_error: str | None
    """Why its processing failed last; null if it did not."""
    notification_count: int
    """For how many recipients it has been decided."""
    remaining: int
    """For how many recipients it has not been decided yet."""
    scheduled_at: Timestamp | None
    """When it is to be decided; null: at once."""
    expires_at: Timestamp | None
    """After this time nothing of it is sent."""
    created_at: Timestamp
    """When the event was accepted."""
    updated_at: Timestamp
    """When the event changed last."""


class ExplainDraft(EventDraft, kw_only=True):
    """An event for one user, and the time to decide for: `at`, else `scheduled_at`, else now."""

    recipient: Annotated[Recipient, one_of("user_id", "segment")]
    """The user; or a segment, with the user in `user_id`."""
    at: Moment | None = None
    """The time to decide for; `scheduled_at` or now if left out."""
    user_id: Annotated[
        UserId | None, Meta(description="The user to decide for, if the recipient is a segment.")
    ] = None


class VerdictView(View):
    """The verdict for a channel, its reason and rule, and the time until which it waits."""

    channel: Channel
    """The channel that the verdict is about."""
    verdict: Literal["send", "hold", "fold", "drop"]
    """`send`, `hold`, `fold` or `drop`."""
    reason: ReasonCode
    """Why, as a stable word."""
    rule: str
    """The rule that decided."""
    until: Timestamp | None
    """Until when it is held or collected; null if it is not, or until a preference changes."""


class ExplanationView(View):
    """The verdicts, and all rules in order: the first that returns a verdict decides."""

    user_id: str
    """The user it was decided for."""
    is_recipient: Annotated[bool, Meta(description="False if the segment has no such user.")]
    at: Timestamp
    """The time it was decided for."""
    verdicts: list[VerdictView]
    """One verdict for each channel."""
    rules: tuple[str, ...]
    """The names of all rules, in the order in which they are asked."""


class EventsController(Controller):
    """Events."""

    path = "/v1/events"
    tags = _TAGS

    @get(summary="List events")
    async def list_events(
        self,
        request: ApiRequest,
        events: Injected[Events],
        status: ByStatus = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[EventView]:
        """Return events, newest first; `?status=failed` lists the dead letters.

        With `pending`, `processing` or `completed`, a page can have fewer items than `limit`, even
        none, and a `next`: follow it until it is null.
        """
        app_id, size = app_of(request, Scope.EVENTS_READ).app_id, check_limit(limit)
        page = await events.list(app_id, status=_check_status(status), after=after, limit=size)
        return Items([_view(each) for each in page.items], page.next)

    @get("/{event_id:str}", summary="Get an event")
    async def get_event(
        self, request: ApiRequest, event_id: EventId, events: Injected[Events]
    ) -> EventView:
        """Return an event and its progress."""
        caller = app_of(request, Scope.EVENTS_READ)
        return _view(await _find(events, caller.app_id, event_id))

    @delete("/{event_id:str}", summary="Cancel an event", status_code=200, errors=(Conflict,))
    async def cancel(
        self,
        request: ApiRequest,
        event_id: EventId,
        events: Injected[Events],
        clock: Injected[Clock],
    ) -> EventView:
        """Cancel everything that is not sent yet. Cancelling it again changes nothing."""
        caller = app_of(request, Scope.EVENTS_WRITE)
        is_done = await events.cancel(caller.app_id, event_id, clock.now())
        event = await _find(events, caller.app_id, event_id)
        if not is_done and event.status is not EventStatus.CANCELLED:
            raise Conflict(f"This event is {event.status.value}: it is too late to cancel it.")
        return _view(event)

    @post(
        "/{event_id:str}/replay",
        summary="Replay a failed event",
        status_code=202,
        errors=(Conflict,),
    )
    async def replay(
        self,
        request: ApiRequest,
        event_id: EventId,
        events: Injected[Events],
        clock: Injected[Clock],
        wake: Injected[Wake],
    ) -> EventView:
        """Retry the failed jobs of an event, with all attempts again.

        The response is sent when all are stored as due. Until then the event is `failed`: if the
        request is interrupted, repeat it to replay the rest.
        """
        caller = app_of(request, Scope.EVENTS_WRITE)
        event = await _find(events, caller.app_id, event_id)
        if not await events.replay(caller.app_id, event_id, event.priority, clock.now()):
            reason = "only a failed event can be replayed"
            raise Conflict(f"This event is {event.status.value}: {reason}.")
        wake(caller.app_id)
        return _view(await _find(events, caller.app_id, event_id))


@post("/v1/explain", summary="Explain a decision", status_code=200, tags=_TAGS)
async def explain(
    request: ApiRequest,
    data: ExplainDraft,
    explainer: Injected[Explainer],
    clock: Injected[Clock],
) -> ExplanationView:
    """Decide an event without sending it: the verdict for each channel, its reason and rule."""
    caller = app_of(request, Scope.EVENTS_READ)
    at = to_milliseconds(data.at, "at")
    scheduled_at = to_milliseconds(data.scheduled_at, "scheduled_at")
    at = next((each for each in (at, scheduled_at) if each is not None), clock.now())
    found = await explainer.explain(caller.app_id, data, at, data.user_id)
    return ExplanationView(
        user_id=found.user_id,
        is_recipient=found.is_recipient,
        at=to_rfc3339(at),
        verdicts=[_view_decision(each) for each in found.decisions],
        rules=RULES,
    )


ROUTES = (EventsController, explain)


async def _find(events: Events, app_id: str, event_id: str) -> Event:
    event = await events.get(app_id, event_id)
    if event is None:
        raise NotFound
    return event


def _check_status(status: str | None) -> EventStatus | None:
    if status is None:
        return None
    return check_value("status", partial(check_choice, EventStatus), status)


def _view(event: Event) -> EventView:
    return EventView.of(
        event,
        event_id=event.id,
        priority=event.priority.label,
        recipient=_recipient(event.audience),
    )


def _recipient(audience: Audience) -> dict[str, Any]:
    match audience.kind:
        case AudienceKind.USER:
            return {"user_id": audience.ids[0]}
        case AudienceKind.USERS:
            return {"user_ids": [each for each in audience.ids if each]}
        case AudienceKind.TOPIC:
            return {"topic": audience.topic}
        case AudienceKind.SEGMENT:
            return {"segment": audience.segment, "filter": audience.filter}
        case AudienceKind.ALL:
            return {"all": True}


def _view_decision(decision: Decision) -> VerdictView:
    verdict = decision.verdict
    until = verdict.until if isinstance(verdict, (Hold, Fold)) else None
    name = type(verdict).__name__.lower()
    return VerdictView.of(decision, verdict=name, reason=verdict.reason, until=to_wire(until))
