"""Topics of devices over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, Response, delete, get, post, put

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.fields import check_topic
from clarion.http.bodies import Body
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.shapes import (
    PAGE_DEFAULT,
    After,
    IdempotencyKey,
    Items,
    Limit,
    check_limit,
    check_value,
    to_milliseconds,
    to_wire,
)
from clarion.idempotency.model import StoredResponse
from clarion.push.api.devices import find_device
from clarion.push.apns.request import LONGEST_LIFE_MS, PAYLOAD_LIMIT_BYTES
from clarion.push.dispatch import Dispatch
from clarion.push.model import Message, PushPriority, StoragePolicy
from clarion.push.port import Devices, DeviceTopics

Seconds = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_LIFE_MS // 1000)]


class TopicView(msgspec.Struct):
    """A topic that devices hear."""

    topic: str
    created_at: str | None


class NewTopicMessage(Body):
    """A message to everybody who hears a topic. It lives 30 days unless said otherwise."""

    payload: dict[str, Any]
    priority: PushPriority = PushPriority.IMMEDIATE
    ttl_s: Seconds | None = None
    expires_at: datetime | None = None
    collapse_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


class AcceptedMessage(msgspec.Struct):
    """A message that was accepted."""

    id: str
    topic: str
    created_at: str | None


class TopicsController(Controller):
    """Topics: written to once, however many hear them."""

    path = "/v1/topics"
    tags = ("Topics",)

    @get(summary="List the topics")
    async def list_topics(
        self,
        request: Request[Any, Any, Any],
        topics: Injected[DeviceTopics],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[TopicView]:
        """Return the topics in the order of their names."""
        caller = app_of(request, Scope.TOPICS_READ)
        page = await topics.list(
            caller.app_id, broadcast_channels=False, after=after, limit=check_limit(limit)
        )
        views = [TopicView(topic.topic, to_wire(topic.created_at)) for topic in page.items]
        return Items(views, page.next)

    @post("/{topic:str}/messages", summary="Send to a topic", status_code=202)
    async def send(
        self,
        request: Request[Any, Any, Any],
        topic: str,
        data: NewTopicMessage,
        dispatch: Injected[Dispatch],
        clock: Injected[Clock],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[AcceptedMessage]:
        """Send to all devices that hear the topic: to those connected now, to the others later."""
        caller = app_of(request, Scope.TOPICS_WRITE)
        message = _message(caller.app_id, check_value("topic", check_topic, topic), data, clock)
        answer = AcceptedMessage(message.id, topic, to_wire(message.created_at))
        once = await idempotency.once(request, idempotency_key, caller.app_id, answer)
        published = await dispatch.publish(message, StoragePolicy.ALL, once)
        if isinstance(published, StoredResponse):
            return idempotency.answer_again(published, once, AcceptedMessage, 202)
        if not published:
            msg = "This topic was deleted."
            raise NotFound(msg)
        return Response(answer, status_code=202)


@put(
    "/v1/devices/{device_id:str}/topics/{topic:str}",
    summary="Let a device hear a topic",
    status_code=204,
    tags=["Topics"],
)
async def subscribe(
    request: Request[Any, Any, Any],
    device_id: str,
    topic: str,
    devices: Injected[Devices],
    dispatch: Injected[Dispatch],
) -> None:
    """Subscribe from now on. Again changes nothing. A device hears at most 1,000 topics."""
    device = await find_device(request, device_id, devices, Scope.TOPICS_WRITE)
    if not await dispatch.subscribe(device, check_value("topic", check_topic, topic)):
        msg = "This topic was deleted."
        raise NotFound(msg)


@delete(
    "/v1/devices/{device_id:str}/topics/{topic:str}",
    summary="Stop hearing a topic",
    status_code=204,
    tags=["Topics"],
)
async def unsubscribe(
    request: Request[Any, Any, Any],
    device_id: str,
    topic: str,
    devices: Injected[Devices],
    dispatch: Injected[Dispatch],
) -> None:
    """Unsubscribe. Again changes nothing."""
    device = await find_device(request, device_id, devices, Scope.TOPICS_WRITE)
    await dispatch.unsubscribe(device, check_value("topic", check_topic, topic))


def _message(app_id: str, topic: str, data: NewTopicMessage, clock: Clock) -> Message:
    now = clock.now()
    return Message(
        id=clock.new_id(),
        device_id="",
        app_id=app_id,
        sequence=0,
        payload=_check_payload(data.payload),
        priority=data.priority,
        collapse_id=data.collapse_id,
        is_stored=True,
        created_at=now,
        expires_at=_expiry(data, now),
        topic=topic,
    )


def _check_payload(payload: dict[str, Any]) -> bytes:
    encoded = msgspec.json.encode(payload)
    if not payload or len(encoded) > PAYLOAD_LIMIT_BYTES:
        reason = f"must be an object with something in it, of at most {PAYLOAD_LIMIT_BYTES} bytes"
        raise InvalidFields(FieldFault("payload", reason))
    return encoded


def _expiry(data: NewTopicMessage, now: int) -> int:
    given = to_milliseconds(data.expires_at, "expires_at")
    if given is not None and data.ttl_s is not None:
        raise InvalidFields(FieldFault("expires_at", "give this or ttl_s, not both"))
    if given is not None and given <= now:
        raise InvalidFields(FieldFault("expires_at", "must be in the future"))
    longest = now + LONGEST_LIFE_MS
    return min(given or (now + data.ttl_s * 1000 if data.ttl_s else longest), longest)
