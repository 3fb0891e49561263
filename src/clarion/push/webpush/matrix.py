"""The Matrix push gateway for UnifiedPush: a homeserver sends here, a push key is an endpoint.

Only endpoints of this installation are served: no request is ever made to a push key.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from clarion.errors import EndpointGone, Forbidden, MalformedBody, NotFound, Unauthenticated
from clarion.http.asgi import FastRoute, Request, Response, respond_json
from clarion.push.webpush.intake import WebPushIntake
from clarion.push.webpush.registry import EndpointRegistry
from clarion.push.webpush.request import BODY_LIMIT_BYTES

PATH = "/_matrix/push/v1/notify"
DISCOVERY = b'{"unifiedpush":{"gateway":"matrix"}}'
# A homeserver names the devices of one user.
DEVICES_LIMIT = 100
# Matrix does not say how long a notification is of use.
TTL_S = 24 * 3600
_ENDED = (EndpointGone, Forbidden, NotFound, Unauthenticated)


class _MatrixDevice(msgspec.Struct):
    pushkey: str


class _Notification(msgspec.Struct):
    devices: Annotated[list[_MatrixDevice], msgspec.Meta(max_length=DEVICES_LIMIT)]
    prio: str = "high"


class _Request(msgspec.Struct):
    notification: _Notification


_decode = msgspec.json.Decoder(_Request).decode


class MatrixGateway:
    """Answers homeservers."""

    def __init__(self, endpoints: EndpointRegistry, intake: WebPushIntake) -> None:
        self._endpoints = endpoints
        self._intake = intake
        self.routes = (
            FastRoute("GET", PATH, self._describe),
            FastRoute("POST", PATH, self._notify),
        )

    async def _describe(self, _request: Request) -> Response:
        return respond_json(200, DISCOVERY)

    async def _notify(self, request: Request) -> Response:
        """Send the body, as it is, to each push key; return those that have ended."""
        body = await request.body(BODY_LIMIT_BYTES)
        try:
            notification = _decode(body).notification
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedBody("The body must be a notification of Matrix.") from error
        urgency = "low" if notification.prio == "low" else "high"
        headers = {"ttl": str(TTL_S), "urgency": urgency}
        keys = dict.fromkeys(device.pushkey for device in notification.devices)
        rejected = [key for key in keys if not await self._push(key, headers, body)]
        return respond_json(200, msgspec.json.encode({"rejected": rejected}))

    async def _push(self, key: str, headers: dict[str, str], body: bytes) -> bool:
        if not key.startswith(self._endpoints.url):
            return False
        try:
            to = await self._endpoints.find(key.removeprefix(self._endpoints.url))
            await self._intake.push(to, headers, body)
        except _ENDED:
            return False
        return True
