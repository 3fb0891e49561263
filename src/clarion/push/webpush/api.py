"""The Web Push endpoints of devices over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post

from clarion.access.model import Scope
from clarion.errors import Conflict
from clarion.fields import DeviceId, check_value, documented
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.shapes import Items, check_limit
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT
from clarion.push.api.devices import find_device
from clarion.push.model import Platform
from clarion.push.model.vapid import read_public_key, write_public_key
from clarion.push.registry import Registry
from clarion.push.webpush.model import PushEndpoint
from clarion.push.webpush.registry import EndpointRegistry

EndpointId = Annotated[
    str, msgspec.Meta(description="The id of the endpoint, from its creation or from the list.")
]


class NewPushEndpoint(Body):
    """An endpoint to create. With a `vapid_key`, only senders that sign with it can send."""

    vapid_key: Annotated[str, documented(pattern="^[A-Za-z0-9_-]{87}=?$")] | None = None
    """The public VAPID key of the only sender that is allowed, in base64url; anyone who knows the
    URL if left out.
    """
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    """A name for people."""


class CreatedPushEndpoint(msgspec.Struct):
    """A new endpoint. Its URL is returned only once; anyone who knows it can send."""

    endpoint_id: str
    """The id by which this API knows the endpoint; it is not part of its URL."""
    endpoint: str
    """The URL to send to. Store it: it is returned this once."""


class PushEndpointView(View):
    """An endpoint, without its URL."""

    endpoint_id: str
    """The id by which this API knows the endpoint; it is not part of its URL."""
    label: str | None
    """A name for people."""
    vapid_key: str | None
    """The public VAPID key of the only sender that is allowed; null: any sender."""
    created_at: Timestamp
    """When the endpoint was created."""


class EndpointsController(Controller):
    """The Web Push endpoints of a device of the calling app or user."""

    path = "/v1/devices/{device_id:str}/endpoints"
    tags = ("Devices",)

    @post(summary="Create a Web Push endpoint", status_code=201)
    async def create(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        data: NewPushEndpoint,
        registry: Injected[Registry],
        endpoint_registry: Injected[EndpointRegistry],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedPushEndpoint]:
        """Return a URL to which Web Push libraries and UnifiedPush servers can send.

        The device must be valid and of the platform `clarion`. It can have 100 endpoints.
        """
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        if device.platform is not Platform.CLARION or not device.is_valid:
            raise Conflict("Only valid devices of the platform clarion have endpoints.")
        vapid_key = check_value("vapid_key", _check_key, data.vapid_key)
        endpoint, url = endpoint_registry.propose(device, vapid_key=vapid_key, label=data.label)
        created = CreatedPushEndpoint(endpoint.id, url)
        once = await idempotency.once(request, idempotency_key, created, device.details.user_id)
        replay = await endpoint_registry.add(endpoint, once)
        if replay is not None:
            return idempotency.answer_again(replay, once, CreatedPushEndpoint, 201)
        return Response(created, status_code=201)

    @get(summary="List the Web Push endpoints of a device")
    async def list_endpoints(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        registry: Injected[Registry],
        endpoint_registry: Injected[EndpointRegistry],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[PushEndpointView]:
        """Return the endpoints, oldest first. Their URLs are not stored."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_READ)
        page = await endpoint_registry.endpoints.list(
            device.app_id,
            device.id,
            device.details.user_id or "",
            after=after,
            limit=check_limit(limit),
        )
        return Items([_view(endpoint) for endpoint in page.items], page.next)

    @delete("/{endpoint_id:str}", summary="Delete a Web Push endpoint", status_code=204)
    async def delete_endpoint(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        endpoint_id: EndpointId,
        registry: Injected[Registry],
        endpoint_registry: Injected[EndpointRegistry],
    ) -> None:
        """Delete the endpoint. Its sender then gets 404; messages sent before are delivered."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        await endpoint_registry.delete(device.app_id, device.id, endpoint_id)


def _check_key(text: str | None) -> str | None:
    return None if text is None else write_public_key(read_public_key(text))


def _view(endpoint: PushEndpoint) -> PushEndpointView:
    return PushEndpointView.of(endpoint, endpoint_id=endpoint.id)


ROUTES = (EndpointsController,)
