"""The Matrix push gateway for UnifiedPush: a homeserver sends here, a push key is an endpoint.

Only endpoints of this installation are served: no request is ever made to a push key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

import msgspec

from clarion.clock import Clock
from clarion.errors import (
    EndpointGone,
    Forbidden,
    MalformedBody,
    NotFound,
    TooManyRequests,
    Unauthenticated,
)
from clarion.http.asgi import FastRoute, Request, Response, respond_json
from clarion.http.strangers import Peers
from clarion.http.visitors import read_visitor
from clarion.nodes.port import NodeLimits
from clarion.push.webpush.intake import WebPushIntake
from clarion.push.webpush.registry import EndpointRegistry
from clarion.push.webpush.request import BODY_LIMIT_BYTES
from clarion.sockets.newcomers import group_address

PATH = "/_matrix/push/v1/notify"
DISCOVERY = b'{"unifiedpush":{"gateway":"matrix"}}'
# A homeserver names the devices of one user.
DEVICES_LIMIT = 100
# Matrix does not say how long a notification is useful.
TTL_S = 24 * 3600
# Unknown push keys from one address in a minute. A homeserver deletes those that are rejected; a
# client that sends more is guessing.
REJECTED_PER_MINUTE = 1_000
_WINDOW_S = 60
# Requests that are handled at a time; each handles its push keys one after the other.
_AT_ONCE = 16
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
    """Answers homeservers, which have no credentials: they are identified by their addresses.

    Behind a TCP proxy all addresses are unknown, and nothing is counted.
    """

    def __init__(
        self,
        endpoints: EndpointRegistry,
        intake: WebPushIntake,
        *,
        limits: NodeLimits,
        clock: Clock,
        peers: Peers,
    ) -> None:
        self._endpoints = endpoints
        self._intake = intake
        self._limits = limits
        self._clock = clock
        self._peers = peers
        self._turns = asyncio.Semaphore(_AT_ONCE)
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
        async with self._turns:
            rejected = await self._push_all(self._identify(request), keys, headers, body)
        return respond_json(200, msgspec.json.encode({"rejected": rejected}))

    def _identify(self, request: Request) -> str:
        """Return what unknown push keys are counted by; `TooManyRequests` if there are too many."""
        address = read_visitor(request.scope, self._peers).address
        who = f"matrix:{group_address(address)}" if address else ""
        now = self._clock.now()
        if who and self._limits.read(who, window_s=_WINDOW_S, now=now) >= REJECTED_PER_MINUTE:
            left_s = self._limits.find_reset_s(window_s=_WINDOW_S, now=now)
            raise TooManyRequests(left_s, "Too many push keys of this address have ended.")
        return who

    async def _push_all(
        self, who: str, keys: Iterable[str], headers: dict[str, str], body: bytes
    ) -> list[str]:
        """Push to each key; return those that have ended."""
        rejected = []
        for key in keys:
            if not await self._push(key, headers, body):
                rejected.append(key)
                self._limits.count(who, window_s=_WINDOW_S, now=self._clock.now())
        return rejected

    async def _push(self, key: str, headers: dict[str, str], body: bytes) -> bool:
        if not key.startswith(self._endpoints.url):
            return False
        try:
            to = await self._endpoints.find(key.removeprefix(self._endpoints.url))
            await self._intake.push(to, headers, body)
        except _ENDED:
            return False
        return True
