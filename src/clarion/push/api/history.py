"""The history of messages to devices over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from msgspec import Meta

from clarion.access.model import Scope
from clarion.errors import NotFound
from clarion.fields import DeviceId
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.shapes import Items, check_limit
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT
from clarion.push.messages import History
from clarion.push.model import MessageReason, MessageRecord, MessageStatus, PushPriority

MessageId = Annotated[str, Meta(description="The id of the message; of a push, its `apns-id`.")]


class MessageView(View):
    """A message to a device with its status."""

    id: str
    """The id of the message: of a push, its `apns-id`."""
    priority: PushPriority
    """10, 5 or 1, as in APNs."""
    collapse_id: str | None
    """A later message with the same id replaces this one if it is still waiting."""
    status: MessageStatus
    """How far the message is."""
    reason: MessageReason | None
    """Why it has this status."""
    created_at: Timestamp
    """When it was accepted."""
    updated_at: Timestamp
    """When its status changed last."""
    expires_at: Timestamp
    """Until when it is kept for a device that is offline."""
    payload: msgspec.Raw
    """What the device receives."""


@get(
    "/v1/devices/{device_id:str}/messages",
    summary="List the messages to a device",
    tags=["Devices"],
)
async def list_messages(
    request: ApiRequest,
    device_id: DeviceId,
    history: Injected[History],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[MessageView]:
    """Return the messages to a device, newest first, even after the device was deleted."""
    caller = app_of(request, Scope.DEVICES_READ)
    page = await history.list(
        caller.app_id, device_id=device_id, after=after, limit=check_limit(limit)
    )
    return Items([_view(record) for record in page.items], page.next)


@get(
    "/v1/devices/{device_id:str}/messages/{message_id:str}",
    summary="Get a message to a device",
    tags=["Devices"],
)
async def get_message(
    request: ApiRequest, device_id: DeviceId, message_id: MessageId, history: Injected[History]
) -> MessageView:
    """Return a message to a device with its status."""
    caller = app_of(request, Scope.DEVICES_READ)
    record = await history.get(caller.app_id, device_id, message_id)
    if record is None:
        raise NotFound("This device has no such message.")
    return _view(record)


def _view(record: MessageRecord) -> MessageView:
    return MessageView.of(record, payload=msgspec.Raw(record.payload))


ROUTES = (list_messages, get_message)
