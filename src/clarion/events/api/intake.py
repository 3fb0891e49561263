"""`POST /v1/events` and `/batch`: plain ASGI functions in front of the framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from clarion.access.model import AppCaller, Scope, require_app
from clarion.clock import to_rfc3339
from clarion.errors import RequestError, Unauthenticated
from clarion.events.drafts import EventDraft
from clarion.events.intake import Intake
from clarion.events.model import AudienceKind, Event, EventStatus
from clarion.http.asgi import FastRoute, Operation, Request, Response, respond_json
from clarion.http.batches import BATCH_LIMIT, Refusal, claim_key, explain_refusal, read_items
from clarion.http.decoding import decode_partly
from clarion.http.idempotency import Idempotency
from clarion.http.shapes import IDEMPOTENCY_KEY
from clarion.http.views import Timestamp
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pacing import Slices

PATH = "/v1/events"
BATCH_PATH = "/v1/events/batch"
ACCEPTED = 202
_REPLAYED = (b"idempotent-replayed", b"true")
_RESULTS = [EventStatus.PENDING, EventStatus.SCHEDULED, "refused"]


class AcceptedEvent(msgspec.Struct):
    """An event that was accepted: it is stored, and will be processed."""

    event_id: str
    """The id of the event, with which its progress is read."""
    status: EventStatus
    """`pending`, or `scheduled` if it waits for its time."""
    created_at: Timestamp
    """When the event was accepted."""


class EventResult(Refusal, omit_defaults=True, kw_only=True):
    """The result for one event of a batch: its id, or with the status `refused` its faults."""

    status: Annotated[str, msgspec.Meta(extra_json_schema={"enum": _RESULTS})]
    """`pending`, `scheduled`, or `refused`: then `code`, `detail` and `errors` say why."""
    event_id: str | None = None
    """The id of the event; left out if it was refused."""
    created_at: Timestamp | None = None
    """When the event was accepted; left out if it was refused."""


class EventBatchResult(msgspec.Struct):
    """One result for each event, in order."""

    results: list[EventResult]
    """One result for each event, in the order of the request."""


class EventBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Up to 1,000 events. A list of events without this object is accepted too."""

    events: Annotated[
        list[EventDraft],
        msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_LIMIT}),
    ]
    """The events, 1 to 1,000."""


_DRAFT = msgspec.json.Decoder(EventDraft)
_encode = msgspec.json.Encoder().encode
_ACCEPT = Operation(
    summary="Send an event",
    description="Accept an event. It is stored when the response is sent.",
    tag="Events",
    status=ACCEPTED,
    parameters=(IDEMPOTENCY_KEY,),
    body=EventDraft,
    response=AcceptedEvent,
    response_description="The event is stored and will be processed.",
)
_ACCEPT_BATCH = replace(
    _ACCEPT,
    summary="Send events in a batch",
    description="Accept up to 1,000 events. An invalid event does not affect the others.",
    body=EventBatch,
    response=EventBatchResult,
    response_description="One result for each event, in order.",
)


class EventEndpoint:
    """Accepts events from applications."""

    def __init__(self, intake: Intake, idempotency: Idempotency) -> None:
        self._intake = intake
        self._idempotency = idempotency
        self.routes = (
            FastRoute("POST", PATH, self.accept, _ACCEPT),
            FastRoute("POST", BATCH_PATH, self.accept_batch, _ACCEPT_BATCH),
        )

    async def accept(self, request: Request) -> Response:
        """`POST /v1/events`."""
        caller = _caller_of(request)
        body = await request.json()
        try:
            event = await self._intake.prepare(caller.app_id, *decode_partly(_DRAFT, body))
        except RequestError:
            # A request may be repeated after its schedule has passed or its user was deleted.
            once = claim_key(self._idempotency, request, caller, body, b"")
            if (replay := await self._intake.find_response(once)) is None:
                raise
            return self._answer_again(replay, once)
        created_at = to_rfc3339(event.created_at)
        answer = _encode(AcceptedEvent(event.id, event.status, created_at))
        return await self._store(request, caller, [event], body, answer)

    async def accept_batch(self, request: Request) -> Response:
        """`POST /v1/events/batch`."""
        caller = _caller_of(request)
        body = await request.json()
        results: list[EventResult] = []
        events: list[Event] = []
        slices = Slices()
        for draft in read_items(body, "events"):
            await slices.pause()
            try:
                event = await self._intake.prepare(caller.app_id, *decode_partly(_DRAFT, draft))
            except RequestError as error:
                results.append(EventResult(status="refused", **explain_refusal(error)))
            else:
                events.append(event)
                results.append(_report(event))
        answer = _encode(EventBatchResult(results))
        return await self._store(request, caller, events, body, answer)

    async def _store(
        self,
        request: Request,
        caller: AppCaller,
        events: Sequence[Event],
        body: bytes,
        answer: bytes,
    ) -> Response:
        about = _only_user(events)
        once = claim_key(self._idempotency, request, caller, body, answer, about)
        intake = self._intake
        replay = await (intake.accept(events, once) if events else intake.find_response(once))
        if replay is not None:
            return self._answer_again(replay, once)
        return respond_json(ACCEPTED, answer)

    def _answer_again(self, replay: StoredResponse, once: IdempotencyClaim | None) -> Response:
        first = self._idempotency.open(replay, once)
        return respond_json(ACCEPTED, first, _REPLAYED)


def _only_user(events: Sequence[Event]) -> str | None:
    """Return the user whom a request is about, if it is one."""
    is_one = len(events) == 1 and events[0].audience.kind is AudienceKind.USER
    return events[0].audience.ids[0] if is_one else None


async def send_event(intake: Intake, app_id: str, body: bytes) -> str:
    """Store an event of this server's own, and return its id."""
    event = await intake.prepare(app_id, *decode_partly(_DRAFT, body))
    await intake.accept([event])
    return event.id


def _caller_of(request: Request) -> AppCaller:
    if request.caller is None:
        raise Unauthenticated
    return require_app(request.caller, Scope.EVENTS_WRITE)


def _report(event: Event) -> EventResult:
    created_at = to_rfc3339(event.created_at)
    return EventResult(status=event.status, event_id=event.id, created_at=created_at)
