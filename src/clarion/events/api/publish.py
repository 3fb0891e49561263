"""One-line publishing over HTTP: `curl -d "Backup done" …/v1/publish/backups`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Controller, Response, route
from litestar.enums import HttpMethod
from litestar.openapi.spec import OpenAPIType, Operation, Parameter, Schema

from clarion.access.model import Scope, require_app
from clarion.errors import NotFound
from clarion.events.publications import (
    CLICK_LENGTH,
    MESSAGE_LIMIT_BYTES,
    PRIORITIES,
    TAGS,
    TITLE_LENGTH,
    Publication,
    PublicationBody,
    read_publication,
)
from clarion.events.publisher import Publisher
from clarion.fields import LINK, VISIBLE_OR_NOTHING, TopicName
from clarion.http.asgi import index_headers
from clarion.http.callers import ApiRequest, app_of, caller_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency, fingerprint
from clarion.http.parameters import IdempotencyKey
from clarion.http.queries import READS_QUERY
from clarion.http.views import Timestamp, View
from clarion.idempotency.model import StoredResponse

ACCEPTED = 202
_TEXT = Schema(type=OpenAPIType.STRING)
_SCHEMAS = {
    "title": Schema(type=OpenAPIType.STRING, pattern=VISIBLE_OR_NOTHING, max_length=TITLE_LENGTH),
    "priority": Schema(type=OpenAPIType.STRING, enum=list(PRIORITIES)),
    "tags": Schema(type=OpenAPIType.STRING, pattern=TAGS),
    "click": Schema(type=OpenAPIType.STRING, pattern=LINK, max_length=CLICK_LENGTH),
}
# Each is a field of JSON, a header and a parameter of the query.
_FIELDS = {
    "message": f"The text, at most {MESSAGE_LIMIT_BYTES:,} bytes. By default `triggered`.",
    "title": "The title. By default the name of the topic.",
    "priority": "1 to 5, or min, low, default, high, max or urgent.",
    "tags": "Tags with commas between them. Those that name an emoji are shown as one.",
    "click": "The link that opens when the notification is clicked.",
}


@dataclass
class PublishOperation(Operation):
    """What OpenAPI says of what we read ourselves: the body, the headers and the parameters."""

    bodies: ClassVar[dict[str, Any]] = {
        "text/plain": Annotated[str, msgspec.Meta(examples=["Backup done"])],
        "application/json": PublicationBody,
    }

    def __post_init__(self) -> None:
        self.parameters = [
            *(self.parameters or ()),
            *(
                Parameter(
                    name=name,
                    param_in=place,
                    schema=_SCHEMAS.get(field, _TEXT),
                    description=text,
                    required=False,
                )
                for field, text in _FIELDS.items()
                for place, name in (("header", field.title()), ("query", field))
            ),
        ]


class Published(View):
    """What was published: the message to the devices, and the event for the followers."""

    event_id: str
    """The event that users who follow the topic are notified of."""
    message_id: str
    """The message that devices get which are subscribed to the topic."""
    topic: str
    """The topic that it was published to."""
    created_at: Timestamp
    """When it was accepted."""


class PublishController(Controller):
    """Publishing with one line."""

    path = "/v1/publish"
    tags = ("Topics",)

    @route(
        "/{topic:str}",
        http_method=[HttpMethod.POST, HttpMethod.PUT],
        summary="Publish to a topic",
        status_code=ACCEPTED,
        operation_class=PublishOperation,
        opt={READS_QUERY: True},  # with other names for its parameters, as in ntfy
    )
    async def publish(
        self,
        request: ApiRequest,
        topic: TopicName,
        publisher: Injected[Publisher],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[Published]:
        """Send to the devices that subscribe to the topic, and to the users who follow it.

        The body is the text; or JSON, if its content type says so. The topic is created, closed,
        if it does not exist. Needs the scopes `topics:write` and `events:write`.
        """
        caller = app_of(request, Scope.TOPICS_WRITE)
        require_app(caller_of(request), Scope.EVENTS_WRITE)
        publication = await _read(request, topic, publisher)
        event, message = await publisher.prepare(caller.app_id, publication)
        answer = Published.of(event, event_id=event.id, message_id=message.id, topic=topic)
        once = None
        if idempotency_key is not None:
            # All that is published counts, wherever it is given.
            asked = fingerprint("POST", request.url.path, msgspec.json.encode(publication))
            once = idempotency.claim(idempotency_key, caller, asked, msgspec.json.encode(answer))
        published = await publisher.publish(event, message, once)
        if isinstance(published, StoredResponse):
            return idempotency.answer_again(published, once, Published, ACCEPTED)
        if not published:
            raise NotFound("This topic was deleted. Use another name.")
        return Response(answer, status_code=ACCEPTED)


async def _read(request: ApiRequest, topic: str, publisher: Publisher) -> Publication:
    return read_publication(
        topic,
        index_headers(list(request.scope["headers"])),
        request.scope["query_string"],
        await request.body(),
        publisher.intake.refused_schemes,
    )


ROUTES = (PublishController,)
