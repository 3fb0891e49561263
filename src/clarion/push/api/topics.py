"""Topics over HTTP, and the subscriptions of devices to them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Controller, Response, delete, get, post, put

from clarion import fields
from clarion.access.model import Scope, UserCaller
from clarion.clock import Clock
from clarion.errors import Conflict, FieldFault, InvalidFields, NotFound
from clarion.fields import NO_ZEROS, DeviceId, Moment, TopicName, check_value, documented
from clarion.http.bodies import Body, Checks, collect
from clarion.http.callers import ApiRequest, app_of, caller_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_limit, to_milliseconds
from clarion.http.views import Timestamp, View
from clarion.idempotency.model import StoredResponse
from clarion.pages import PAGE_DEFAULT
from clarion.push.api.devices import find_device
from clarion.push.apns.request import MAX_TTL_MS, PAYLOAD_LIMIT_BYTES
from clarion.push.dispatch import Dispatch
from clarion.push.model import Message, PushPriority, StoragePolicy, Topic, require_open
from clarion.push.registry import Registry
from clarion.push.sql.topics import Topics

_DELETED = "This topic was deleted. Use another name."
Seconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL_MS // 1000)]


class TopicBody(Body):
    """Whether users may follow a topic and subscribe their devices; otherwise only the app may."""

    open: bool = False
    """Whether users may subscribe their own devices."""


class TopicView(View):
    """A topic that users follow and devices subscribe to."""

    topic: str
    """The name of the topic."""
    open: bool
    """Whether users may subscribe their own devices."""
    created_at: Timestamp
    """When the topic was created."""


class NewTopicMessage(Body):
    """A message to all subscribers of a topic. It expires after 30 days by default."""

    payload: Annotated[dict[str, Any], documented(minProperties=1)]
    """What the devices receive: an object that is not empty, at most 4 KiB as JSON."""
    priority: PushPriority = PushPriority.IMMEDIATE
    """10: at once; 5: when it suits the device; 1: when it is in use anyway."""
    ttl_s: Seconds | None = None
    """For how many seconds the message is kept for devices that are offline."""
    expires_at: Moment | None = None
    """Until when it is kept for them, in place of `ttl_s`."""
    collapse_id: (
        Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=NO_ZEROS)] | None
    ) = None
    """A message replaces an earlier one with the same id that a device has not received yet."""

    def checks(self, now: int = 0) -> Checks:
        return {
            "payload": partial(_check_payload, self.payload),
            "expires_at": partial(_expiry, self, now),
        }


class AcceptedMessage(View):
    """A message that was accepted."""

    id: str
    """The id of the message."""
    topic: str
    """The topic it is sent to."""
    created_at: Timestamp
    """When it was accepted."""


class TopicsController(Controller):
    """The topics of the calling app."""

    path = "/v1/topics"
    tags = ("Topics",)

    @get(summary="List topics")
    async def list_topics(
        self,
        request: ApiRequest,
        topics: Injected[Topics],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[TopicView]:
        """Return the topics in the order of their names."""
        caller = app_of(request, Scope.TOPICS_READ)
        page = await topics.list(
            caller.app_id, broadcast_channels=False, after=after, limit=check_limit(limit)
        )
        return Items([_view(topic) for topic in page.items], page.next)

    @put(
        "/{topic:str}",
        summary="Create, open or close a topic",
        responses={201: describe_response(TopicView, "The topic was created.")},
        errors=(Conflict,),
    )
    async def put_topic(
        self,
        request: ApiRequest,
        topic: TopicName,
        data: TopicBody,
        topics: Injected[Topics],
        clock: Injected[Clock],
    ) -> Response[TopicView]:
        """Create a topic (201), or change who may follow it (200). Followers and devices stay.

        A topic is also created, closed, by its first follower, subscription or message.
        """
        caller = app_of(request, Scope.TOPICS_WRITE)
        wanted = Topic(
            app_id=caller.app_id,
            topic=_check_topic(topic),
            is_broadcast_channel=False,
            storage_policy=StoragePolicy.ALL,
            is_open=data.open,
            created_at=clock.now(),
        )
        done = await topics.put(wanted)
        if done is None:
            msg = "This topic was deleted, or is a broadcast channel. Use another name."
            raise Conflict(msg)
        stored, is_new = done
        return Response(_view(stored), status_code=201 if is_new else 200)

    @post("/{topic:str}/messages", summary="Send a message to a topic", status_code=202)
    async def publish(
        self,
        request: ApiRequest,
        topic: TopicName,
        data: NewTopicMessage,
        dispatch: Injected[Dispatch],
        clock: Injected[Clock],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[AcceptedMessage]:
        """Send to all subscribed devices: at once if connected, else when they connect again."""
        caller = app_of(request, Scope.TOPICS_WRITE)
        message = _message(caller.app_id, _check_topic(topic), data, clock)
        answer = AcceptedMessage.of(message)
        once = await idempotency.once(request, idempotency_key, answer)
        published = await dispatch.topics.publish(message, StoragePolicy.ALL, once)
        if isinstance(published, StoredResponse):
            return idempotency.answer_again(published, once, AcceptedMessage, 202)
        if not published:
            raise NotFound(_DELETED)
        return Response(answer, status_code=202)


class SubscriptionsController(Controller):
    """The subscriptions of a device."""

    path = "/v1/devices/{device_id:str}/topics/{topic:str}"
    tags = ("Topics",)

    @put(summary="Subscribe a device to a topic", status_code=204, errors=(Conflict,))
    async def subscribe(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        topic: TopicName,
        registry: Injected[Registry],
        dispatch: Injected[Dispatch],
        topics: Injected[Topics],
    ) -> None:
        """Subscribe to later messages of a topic, at most 1,000 topics. A repeat changes nothing.

        With a user token, only open topics are allowed.
        """
        device = await find_device(request, device_id, registry, Scope.TOPICS_WRITE)
        name = _check_topic(topic)
        if isinstance(caller_of(request), UserCaller):
            require_open(await topics.get(device.app_id, name), name)
        if not await dispatch.topics.subscribe(device, name):
            raise NotFound(_DELETED)

    @delete(summary="Unsubscribe a device from a topic", status_code=204)
    async def unsubscribe(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        topic: TopicName,
        registry: Injected[Registry],
        dispatch: Injected[Dispatch],
    ) -> None:
        """Unsubscribe the device. A repeat changes nothing."""
        device = await find_device(request, device_id, registry, Scope.TOPICS_WRITE)
        await dispatch.topics.unsubscribe(device, _check_topic(topic))


def _view(topic: Topic) -> TopicView:
    return TopicView.of(topic, open=topic.is_open)


def _check_topic(topic: str) -> str:
    return check_value("topic", fields.check_topic, topic)


def _message(app_id: str, topic: str, data: NewTopicMessage, clock: Clock) -> Message:
    now = clock.now()
    checked = collect(data.checks(now))
    return Message(
        id=clock.new_id(),
        app_id=app_id,
        payload=checked["payload"],
        priority=data.priority,
        collapse_id=data.collapse_id,
        is_stored=True,
        created_at=now,
        expires_at=checked["expires_at"],
        topic=topic,
    )


def _check_payload(payload: dict[str, Any]) -> bytes:
    encoded = msgspec.json.encode(payload)
    if not payload or len(encoded) > PAYLOAD_LIMIT_BYTES:
        reason = f"must be an object that is not empty, of at most {PAYLOAD_LIMIT_BYTES} bytes"
        raise InvalidFields(FieldFault("payload", reason))
    return encoded


def _expiry(data: NewTopicMessage, now: int) -> int:
    given = to_milliseconds(data.expires_at, "expires_at")
    if given is not None and data.ttl_s is not None:
        raise ValueError("must not be given together with ttl_s")
    if given is not None and given <= now:
        raise ValueError("must be in the future")
    latest = now + MAX_TTL_MS
    return min(given or (now + data.ttl_s * 1000 if data.ttl_s else latest), latest)


ROUTES = (TopicsController, SubscriptionsController)
