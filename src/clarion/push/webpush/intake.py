"""Accepts Web Push messages: the signature and the limits are checked, then it is a push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clarion.clock import Clock
from clarion.errors import (
    ClarionError,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthenticated,
)
from clarion.nodes.port import NodeLimits
from clarion.push.dispatch import Dispatch
from clarion.push.messages import History
from clarion.push.webpush.model import EndpointOfDevice, PushEndpoint
from clarion.push.webpush.registry import EndpointRegistry
from clarion.push.webpush.request import parse_push, read_endpoint_id
from clarion.push.webpush.signatures import VapidSignatures

_WINDOW_S = 60
# The limit of all endpoints of a device together, as a multiple of that of one.
_DEVICE_SHARE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPushIntake:
    """Accepts messages to endpoints."""

    endpoints: EndpointRegistry
    dispatch: Dispatch
    history: History
    signatures: VapidSignatures
    limits: NodeLimits
    clock: Clock
    per_minute: int

    async def push(
        self, to: EndpointOfDevice, headers: Mapping[str, str], body: bytes
    ) -> tuple[str, int]:
        """Accept a message, and return its id and lifetime in seconds, after it is durable."""
        now = self.clock.now()
        self._check_sender(to.endpoint, headers, now)
        push, ttl_s = parse_push(to, headers, body, now)
        self._count(f"endpoint:{to.endpoint.id}", self.per_minute, now)
        self._count(f"endpoints:{to.device.id}", self.per_minute * _DEVICE_SHARE, now)
        message_id = self.clock.new_id()
        await self.dispatch.accept(to.device, push, message_id)
        if not self.endpoints.is_current(to):
            await self._fail_if_ended(to, message_id)
        return message_id, ttl_s

    async def cancel(
        self, to: EndpointOfDevice, headers: Mapping[str, str], message_id: str
    ) -> None:
        """Cancel a waiting message; `NotFound` if the endpoint has no such message."""
        now = self.clock.now()
        self._check_sender(to.endpoint, headers, now)
        self._count(f"cancel:{to.endpoint.id}", self.per_minute, now)
        device = to.device
        found = await self.history.get(device.app_id, device.id, message_id)
        is_own = found is not None and read_endpoint_id(found.payload) == to.endpoint.id
        if not is_own or not await self.dispatch.cancel(device, message_id):
            raise NotFound("No such message of this endpoint waits.")

    async def _fail_if_ended(self, to: EndpointOfDevice, message_id: str) -> None:
        """Fail a message that was stored after its endpoint or device had ended."""
        try:
            await self.endpoints.find_hashed(to.endpoint.capability_hash)
        except ClarionError:
            await self.dispatch.fail(to.device, message_id)
            raise

    def _check_sender(self, endpoint: PushEndpoint, headers: Mapping[str, str], now: int) -> None:
        authorization = headers.get("authorization", "")
        key = self.signatures.identify(authorization, headers.get("crypto-key", ""), now)
        if endpoint.vapid_key is None:
            return
        if key is None:
            raise Unauthenticated("This endpoint takes only messages that are signed (VAPID).")
        if key != endpoint.vapid_key:
            raise Forbidden("This endpoint was created for another VAPID key.")

    def _count(self, key: str, limit: int, now: int) -> None:
        if self.limits.count(key, window_s=_WINDOW_S, now=now) > limit:
            left_s = self.limits.find_reset_s(window_s=_WINDOW_S, now=now)
            raise TooManyRequests(left_s, "Too many messages to this endpoint in this minute.")
