"""Drafts: events as requests describe them, their checks, and the events made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clarion.catalog.model import Channel, Priority, PriorityName
from clarion.clock import to_milliseconds
from clarion.errors import FieldFault, InvalidFields
from clarion.events.model import Audience, AudienceKind, Event, EventStatus
from clarion.fields import (
    NO_ZEROS,
    REFUSED_SCHEMES,
    ImageUrl,
    Link,
    Moment,
    SegmentName,
    TopicName,
    UserId,
    check_image_url,
    check_json,
    check_link,
    check_segment,
    check_topic,
    check_user_id,
    documented,
    is_user_id,
)
from clarion.history.model import Actor, Content, Target
from clarion.http.bodies import Body, Checks

RECIPIENTS_LIMIT = 10_000
DATA_LIMIT_BYTES = 65_536
MAX_TTL_S = 30 * 24 * 3600
MAX_SCHEDULE_MS = 366 * 24 * 3600 * 1000
# A zero character in JSON; after another backslash it is the six characters themselves.
_ESCAPED = rb"\u0000"
_ZERO = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

# Control characters in a name could end a header of an email. The rule is not in the type, which
# also reads stored events.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# A zero character in these is refused with all other control characters.
_WITHOUT_CONTROLS = ("actor", "target", "deeplink", "image_url")


class Recipient(Body):
    """The recipients of an event: exactly one of these fields."""

    user_id: UserId | None = None
    """One user."""
    user_ids: Annotated[list[UserId], documented(minItems=1, maxItems=RECIPIENTS_LIMIT)] | None = (
        None
    )
    """Up to 10,000 users; repeated ones count once."""
    topic: TopicName | None = None
    """All users who follow this topic."""
    segment: SegmentName | None = None
    """All users whom the filter of this segment selects."""
    all: Annotated[bool, documented(enum=[True])] | None = None
    """All active users of the app; must be true."""


def one_of(*names: str) -> Meta:
    """Return what the OpenAPI document says: exactly one of these fields is given, and not null."""
    others = [name for name in Recipient.__struct_fields__ if name not in names]
    return documented(
        oneOf=[
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names
        ],
        properties={name: {"type": "null"} for name in others},
    )


class EventDraft(Body):
    """An event to send. Give `ttl_s` or `expires_at`, or neither."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """The notification type: a built-in one, or one of your own."""
    recipient: Annotated[Recipient, one_of(*Recipient.__struct_fields__)]
    """Who is to be notified."""
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values for the templates of the type, which notifications also carry; at most 64 KiB as JSON.
    """
    actor: Actor | None = None
    """Who caused the event."""
    target: Target | None = None
    """What the event is about."""
    priority: PriorityName | Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    """How urgent it is; as the type says if left out. 0 is `low`, 3 is `critical`."""
    channels: Annotated[list[Channel], msgspec.Meta(min_length=1, max_length=6)] | None = None
    """The only channels to use; those of the type if left out."""
    dedupe_key: (
        Annotated[
            str,
            msgspec.Meta(min_length=1, max_length=256, extra_json_schema={"pattern": NO_ZEROS}),
        ]
        | None
    ) = None
    """Events of the type with the same key count as duplicates, if the type has a dedupe window."""
    scheduled_at: Moment | None = None
    """When to decide and send, within a year; at once if left out."""
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL_S)] | None = None
    """For how many seconds the event is worth sending, at most 30 days."""
    expires_at: Moment | None = None
    """After this time nothing of the event is sent."""
    deeplink: Annotated[Link, msgspec.Meta(max_length=2048)] | None = None
    """What a click on the notification opens."""
    image_url: Annotated[ImageUrl, msgspec.Meta(max_length=2048)] | None = None
    """An image for the notification: an http or https URL, or a relative one."""

    def checks(self) -> Checks:
        return {"": partial(_check_timeless, self)}


def _check_timeless(draft: EventDraft) -> None:
    if faults := tuple(find_timeless_faults(draft)):
        raise InvalidFields(*faults)


def find_faults(
    draft: EventDraft, now: int, refused_schemes: Collection[str] = REFUSED_SCHEMES
) -> Iterator[FieldFault]:
    """Yield the faults of a draft that do not depend on its type or its recipients."""
    yield from find_timeless_faults(draft, refused_schemes)
    for name, moment in _times(draft):
        if moment.tzinfo is None:
            continue
        if to_milliseconds(moment) <= now:
            yield FieldFault(name, "must be in the future")
        elif to_milliseconds(moment) > now + MAX_SCHEDULE_MS:
            yield FieldFault(name, "must be within a year")


def find_timeless_faults(
    draft: EventDraft, refused_schemes: Collection[str] = REFUSED_SCHEMES
) -> Iterator[FieldFault]:
    """Yield the faults that do not depend on the time either."""
    yield from _recipient_faults(draft.recipient)
    yield from _time_faults(draft)
    yield from _name_faults(draft)
    yield from _link_faults(draft, refused_schemes)
    try:
        check_json(draft.data, DATA_LIMIT_BYTES)
    except ValueError as error:
        yield FieldFault("data", str(error))
        return
    if _has_zero(draft):
        for name in draft.__struct_fields__:
            if name not in _WITHOUT_CONTROLS and _has_zero(getattr(draft, name)):
                yield FieldFault(name, "must not contain zero characters")


def _has_zero(value: object) -> bool:
    # PostgreSQL cannot store them. The pattern is tried at each byte, so only if need be.
    encoded = msgspec.json.encode(value)
    return _ESCAPED in encoded and _ZERO.search(encoded) is not None


def _recipient_faults(recipient: Recipient) -> Iterator[FieldFault]:
    given = [name for name in recipient.__struct_fields__ if getattr(recipient, name) is not None]
    if len(given) != 1:
        yield FieldFault(
            "recipient", "must have exactly one of user_id, user_ids, topic, segment and all"
        )
        return
    match given[0]:
        case "user_id":
            yield from _check("recipient.user_id", check_user_id, recipient.user_id or "")
        case "user_ids" if not 0 < len(recipient.user_ids or ()) <= RECIPIENTS_LIMIT:
            yield FieldFault("recipient.user_ids", f"must name 1 to {RECIPIENTS_LIMIT:,} users")
        case "user_ids":
            yield from _user_id_faults(recipient.user_ids or [])
        case "topic":
            yield from _check("recipient.topic", check_topic, recipient.topic or "")
        case "segment":
            yield from _check("recipient.segment", check_segment, recipient.segment or "")
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


def _name_faults(draft: EventDraft) -> Iterator[FieldFault]:
    for place, named in (("actor", draft.actor), ("target", draft.target)):
        if named is None:
            continue
        for name, text in zip(named.__struct_fields__, msgspec.structs.astuple(named), strict=True):
            if text is not None and _CONTROL.search(text):
                yield FieldFault(f"{place}.{name}", "must not contain control characters")


def _link_faults(draft: EventDraft, refused_schemes: Collection[str]) -> Iterator[FieldFault]:
    if draft.deeplink is not None:
        check = partial(check_link, refused_schemes=refused_schemes)
        yield from _check("deeplink", check, draft.deeplink)
    if draft.image_url is not None:
        yield from _check("image_url", check_image_url, draft.image_url)


def _times(draft: EventDraft) -> Iterator[tuple[str, datetime]]:
    if draft.scheduled_at is not None:
        yield "scheduled_at", draft.scheduled_at
    if draft.expires_at is not None:
        yield "expires_at", draft.expires_at


def _time_faults(draft: EventDraft) -> Iterator[FieldFault]:
    for name, moment in _times(draft):
        if moment.tzinfo is None:
            yield FieldFault(name, "must have an offset, like 2026-01-31T12:00:00Z")
    if draft.ttl_s is not None and draft.expires_at is not None:
        yield FieldFault("expires_at", "must not be given together with ttl_s")
    start, end = draft.scheduled_at, draft.expires_at
    if start and end and start.tzinfo and end.tzinfo and end <= start:
        yield FieldFault("expires_at", "must be after scheduled_at")


def make_event(
    draft: EventDraft,
    app_id: str,
    event_id: str,
    now: int,
    *,
    priority: Priority,
    trace: str | None = None,
) -> Event:
    """Return the event of a draft without faults; `priority` is used if the draft has none."""
    scheduled_at = to_milliseconds(draft.scheduled_at) if draft.scheduled_at else None
    return Event(
        app_id=app_id,
        id=event_id,
        type=draft.type,
        audience=make_audience(draft.recipient),
        content=_content(draft),
        priority=_priority(draft, priority),
        dedupe_key=draft.dedupe_key,
        status=EventStatus.SCHEDULED if scheduled_at else EventStatus.PENDING,
        # A large audience counts as one recipient until all its users are found.
        remaining=1,
        scheduled_at=scheduled_at,
        expires_at=_expiry(draft, scheduled_at or now),
        created_at=now,
        updated_at=now,
        trace=trace,
    )


def make_audience(recipient: Recipient) -> Audience:
    """Return the audience of a recipient; repeated users count once."""
    if recipient.user_id is not None:
        return Audience(AudienceKind.USER, (recipient.user_id,))
    if recipient.user_ids is not None:
        ids = tuple(dict.fromkeys(recipient.user_ids))
        return Audience(AudienceKind.USERS if len(ids) > 1 else AudienceKind.USER, ids)
    if recipient.topic is not None:
        return Audience(AudienceKind.TOPIC, topic=recipient.topic)
    if recipient.segment is not None:
        return Audience(AudienceKind.SEGMENT, segment=recipient.segment)
    return Audience(AudienceKind.ALL)


def _content(draft: EventDraft) -> Content:
    return Content(
        data=draft.data,
        actor=draft.actor,
        target=draft.target,
        channels=tuple(dict.fromkeys(draft.channels)) if draft.channels else None,
        deeplink=draft.deeplink,
        image_url=draft.image_url,
        collapse_key=draft.dedupe_key,
    )


def _priority(draft: EventDraft, default: Priority) -> Priority:
    if draft.priority is None:
        return default
    if isinstance(draft.priority, int):
        return Priority(draft.priority)
    return Priority[draft.priority.name]


def _expiry(draft: EventDraft, start: int) -> int | None:
    if draft.ttl_s is not None:
        return start + draft.ttl_s * 1000
    return to_milliseconds(draft.expires_at) if draft.expires_at else None
