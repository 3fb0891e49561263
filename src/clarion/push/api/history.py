"""What was sent to devices and what became of it, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, get

from clarion.access.model import Scope
from clarion.errors import NotFound
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, to_wire
from clarion.push.port import History

if TYPE_CHECKING:
    from clarion.push.model import MessageRecord


class MessageView(msgspec.Struct):
    """A message to a device and what became of it."""

    id: str
    priority: int
    collapse_id: str | None
    status: str
    reason: str | None
    created_at: str | None
    updated_at: str | None
    expires_at: str | None
    payload: msgspec.Raw


@get(
    "/v1/devices/{device_id:str}/messages",
    summary="See what was sent to a device",
    tags=["Devices"],
)
async def list_messages(
    request: Request[Any, Any, Any],
    device_id: str,
    history: Injected[History],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[MessageView]:
    """Return the messages to a device, newest first, also when the device is gone."""
    caller = app_of(request, Scope.DEVICES_READ)
    page = await history.list(
        caller.app_id, device_id=device_id, after=after, limit=check_limit(limit)
    )
    return Items([_message_view(record) for record in page.items], page.next)


@get(
    "/v1/devices/{device_id:str}/messages/{message_id:str}",
    summary="See one message",
    tags=["Devices"],
)
async def see_message(
    request: Request[Any, Any, Any], device_id: str, message_id: str, history: Injected[History]
) -> MessageView:
    """Return one message and what became of it."""
    caller = app_of(request, Scope.DEVICES_READ)
    record = await history.get(caller.app_id, device_id, message_id)
    if record is None:
        msg = "This device has no such message."
        raise NotFound(msg)
    return _message_view(record)


def _message_view(record: MessageRecord) -> MessageView:
    return MessageView(
        id=record.id,
        priority=record.priority.value,
        collapse_id=record.collapse_id,
        status=record.status.value,
        reason=record.reason.value if record.reason else None,
        created_at=to_wire(record.created_at),
        updated_at=to_wire(record.updated_at),
        expires_at=to_wire(record.expires_at),
        payload=msgspec.Raw(record.payload),
    )
