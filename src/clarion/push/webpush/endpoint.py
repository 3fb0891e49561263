"""The Web Push endpoint over HTTP, with what UnifiedPush requires of a server.

No key is needed: anyone who knows the URL may send. Senders delete a subscription for most answers
of 400 to 499, so temporary faults are answered with 429 or 503.
"""

from __future__ import annotations

from clarion.errors import ClarionError, MethodNotAllowed, Unauthenticated
from clarion.http import problems
from clarion.http.asgi import Request, Response, respond_json
from clarion.push.webpush.intake import WebPushIntake
from clarion.push.webpush.registry import PREFIX, EndpointRegistry
from clarion.push.webpush.request import BODY_LIMIT_BYTES, read_headers

DISCOVERY = b'{"unifiedpush":{"version":1}}'


class WebPushEndpoint:
    """Answers `/push/{secret}`, and `/push/{secret}/{message}`."""

    def __init__(self, endpoints: EndpointRegistry, intake: WebPushIntake) -> None:
        self._endpoints = endpoints
        self._intake = intake
        self.prefixes = {PREFIX: self._answer}

    async def _answer(self, request: Request) -> Response:
        capability, _, message_id = request.scope["path"].removeprefix(PREFIX).partition("/")
        try:
            match request.scope["method"]:
                case _ if message_id:
                    return await self._cancel(request, capability, message_id)
                case "POST":
                    return await self._push(request, capability)
                case "GET" | "HEAD":
                    await self._endpoints.find(capability)
                    return respond_json(200, DISCOVERY)
                case _:
                    raise MethodNotAllowed({"GET", "HEAD", "POST"})
        except Unauthenticated as error:
            await request.discard()
            body = problems.encode(error, request.id)
            kind = (b"content-type", problems.MEDIA_TYPE.encode())
            return Response(error.status, body, (kind, (b"www-authenticate", b"vapid")))
        except ClarionError:
            await request.discard()
            raise

    async def _push(self, request: Request, capability: str) -> Response:
        to = await self._endpoints.find(capability)
        headers = read_headers(request.scope["headers"])
        body = await request.body(BODY_LIMIT_BYTES)
        message_id, ttl_s = await self._intake.push(to, headers, body)
        location = f"{self._endpoints.url}{capability}/{message_id}"
        more = ((b"location", location.encode()), (b"ttl", b"%d" % ttl_s))
        return Response(201, b"", more)

    async def _cancel(self, request: Request, capability: str, message_id: str) -> Response:
        """Answer requests for a message, at the `Location` that its sender got."""
        to = await self._endpoints.find(capability)
        if request.scope["method"] != "DELETE":
            raise MethodNotAllowed({"DELETE"})
        await request.discard()
        await self._intake.cancel(to, read_headers(request.scope["headers"]), message_id)
        return Response(204, b"", ())
