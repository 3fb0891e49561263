"""An event as the wire brings it, and the rules it must keep before anything is stored."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from clarion.catalog.model import Channel, Priority
from clarion.clock import to_milliseconds
from clarion.errors import FieldFault
from clarion.events.model import Actor, Audience, AudienceKind, Content, Event, EventStatus, Target
from clarion.fields import check_topic, check_user_id, is_user_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PEOPLE_LIMIT = 10_000
DATA_LIMIT_BYTES = 65_536
LONGEST_LIFE_S = 30 * 24 * 3600
LATEST_SCHEDULE_MS = 366 * 24 * 3600 * 1000
# As JSON has it; behind another backslash it would be the six characters themselves.
_ZERO = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

Short = Annotated[str, msgspec.Meta(max_length=256)]
PriorityName = Literal["low", "medium", "high", "critical"]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Part of a request: an unknown field is an error, not ignored."""


class Recipient(Body):
    """For whom; exactly one of these."""

    user_id: str | None = None
    user_ids: list[str] | None = None
    topic: str | None = None
    segment: str | None = None
    all: bool | None = None


class ActorDraft(Body):
    """Who did it."""

    id: Short | None = None
    name: Short | None = None


class TargetDraft(Body):
    """What it was done to."""

    id: Short | None = None
    type: Short | None = None


class EventDraft(Body):
    """Something that happened. Give `ttl_s` or `expires_at`, or neither."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    recipient: Recipient
    data: dict[str, Any] = {}
    actor: ActorDraft | None = None
    target: TargetDraft | None = None
    priority: PriorityName | Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    channels: Annotated[list[Channel], msgspec.Meta(min_length=1, max_length=6)] | None = None
    dedupe_key: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    scheduled_at: datetime | None = None
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_LIFE_S)] | None = None
    expires_at: datetime | None = None
    deeplink: Annotated[str, msgspec.Meta(max_length=2048)] | None = None
    image_url: Annotated[str, msgspec.Meta(max_length=2048)] | None = None


def find_faults(draft: EventDraft, now: int) -> Iterator[FieldFault]:
    """Yield what is wrong with a draft by itself, whatever its type and whomever it names."""
    yield from find_timeless_faults(draft)
    for name, moment in _moments(draft):
        if moment.tzinfo is None:
            continue
        if to_milliseconds(moment) <= now:
            yield FieldFault(name, "must be in the future")
        elif to_milliseconds(moment) > now + LATEST_SCHEDULE_MS:
            yield FieldFault(name, "must be within a year")


def find_timeless_faults(draft: EventDraft) -> Iterator[FieldFault]:
    """Yield what is wrong with a draft whatever the time."""
    yield from _recipient_faults(draft.recipient)
    yield from _order_faults(draft)
    if draft.data and len(msgspec.json.encode(draft.data)) > DATA_LIMIT_BYTES:
        yield FieldFault("data", f"must have at most {DATA_LIMIT_BYTES:,} bytes as JSON")
    elif _has_zero(draft):
        for name in draft.__struct_fields__:
            if _has_zero(getattr(draft, name)):
                yield FieldFault(name, "must not hold zero characters")


def _has_zero(value: object) -> bool:
    """PostgreSQL cannot keep them."""
    return _ZERO.search(msgspec.json.encode(value)) is not None


def _recipient_faults(recipient: Recipient) -> Iterator[FieldFault]:
    given = [name for name in recipient.__struct_fields__ if getattr(recipient, name) is not None]
    if len(given) != 1:
        yield FieldFault("recipient", "give one of user_id, user_ids, topic, segment and all")
        return
    match given[0]:
        case "user_id":
            yield from _check("recipient.user_id", check_user_id, recipient.user_id or "")
        case "user_ids" if not 0 < len(recipient.user_ids or ()) <= PEOPLE_LIMIT:
            yield FieldFault("recipient.user_ids", f"must name 1 to {PEOPLE_LIMIT:,} people")
        case "user_ids":
            yield from _user_id_faults(recipient.user_ids or [])
        case "topic":
            yield from _check("recipient.topic", check_topic, recipient.topic or "")
        case "segment":
            yield FieldFault("recipient.segment", "there is no such segment")
        case "all" if not recipient.all:
            yield FieldFault("recipient.all", "must be true, or left out")


def _user_id_faults(user_ids: list[str]) -> Iterator[FieldFault]:
    """Yield the first id that no user can have."""
    for index, user_id in enumerate(user_ids):
        if not is_user_id(user_id):
            yield from _check(f"recipient.user_ids[{index}]", check_user_id, user_id)
            return


def _check(field: str, check: Callable[[str], str], value: str) -> Iterator[FieldFault]:
    try:
        check(value)
    except ValueError as error:
        yield FieldFault(field, str(error))


def _moments(draft: EventDraft) -> Iterator[tuple[str, datetime]]:
    if draft.scheduled_at is not None:
        yield "scheduled_at", draft.scheduled_at
    if draft.expires_at is not None:
        yield "expires_at", draft.expires_at


def _order_faults(draft: EventDraft) -> Iterator[FieldFault]:
    for name, moment in _moments(draft):
        if moment.tzinfo is None:
            yield FieldFault(name, "must say its offset, like 2026-01-31T12:00:00Z")
    if draft.ttl_s is not None and draft.expires_at is not None:
        yield FieldFault("expires_at", "give this or ttl_s, not both")
    if _are_swapped(draft):
        yield FieldFault("expires_at", "must be after scheduled_at")


def _are_swapped(draft: EventDraft) -> bool:
    start, end = draft.scheduled_at, draft.expires_at
    if start is None or end is None or start.tzinfo is None or end.tzinfo is None:
        return False
    return end <= start


def make_event(
    draft: EventDraft, app_id: str, event_id: str, now: int, *, priority: Priority
) -> Event:
    """Return the event of a draft without faults; `priority` counts if the draft has none."""
    scheduled_at = to_milliseconds(draft.scheduled_at) if draft.scheduled_at else None
    audience = make_audience(draft.recipient)
    return Event(
        app_id=app_id,
        id=event_id,
        type=draft.type,
        audience=audience,
        content=_content(draft),
        priority=_priority(draft, priority),
        dedupe_key=draft.dedupe_key,
        status=EventStatus.SCHEDULED if scheduled_at else EventStatus.PENDING,
        # A large audience counts as one until all its people are found.
        remaining=1,
        scheduled_at=scheduled_at,
        expires_at=_expiry(draft, scheduled_at or now),
        created_at=now,
        updated_at=now,
    )


def make_audience(recipient: Recipient) -> Audience:
    """Return for whom an event is; who is named twice is meant once."""
    if recipient.user_id is not None:
        return Audience(AudienceKind.USER, (recipient.user_id,))
    if recipient.user_ids is not None:
        people = tuple(dict.fromkeys(recipient.user_ids))
        return Audience(AudienceKind.USERS if len(people) > 1 else AudienceKind.USER, people)
    if recipient.topic is not None:
        return Audience(AudienceKind.TOPIC, topic=recipient.topic)
    return Audience(AudienceKind.ALL)


def _content(draft: EventDraft) -> Content:
    actor, target = draft.actor, draft.target
    return Content(
        data=draft.data,
        actor=Actor(actor.id, actor.name) if actor else None,
        target=Target(target.id, target.type) if target else None,
        channels=tuple(dict.fromkeys(draft.channels)) if draft.channels else None,
        deeplink=draft.deeplink,
        image_url=draft.image_url,
    )


def _priority(draft: EventDraft, default: Priority) -> Priority:
    if draft.priority is None:
        return default
    if isinstance(draft.priority, int):
        return Priority(draft.priority)
    return Priority[draft.priority.upper()]


def _expiry(draft: EventDraft, start: int) -> int | None:
    if draft.ttl_s is not None:
        return start + draft.ttl_s * 1000
    return to_milliseconds(draft.expires_at) if draft.expires_at else None
